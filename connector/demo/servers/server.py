"""Home folder + command -> a server of this process: start, wait until it answers, stop or kill, tell why not."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from connector.demo.servers.process import ChildProcess
from connector.errors import FatalError

_POLL_S = 0.05


class Server:
    """What the embedded servers share; each gives its `_launch` and `_is_answering`. The process ends with this one."""

    name = "server"
    ready_s = 240.0  # tells what hangs: on a machine with other work a start takes ten times as long as else
    stop_s = 20.0
    starts = 1

    def __init__(self, home: Path) -> None:
        """Describe a server; nothing runs yet."""
        self.home = Path(home).absolute()
        self._port: int | None = None
        self._child: ChildProcess | None = None

    @property
    def port(self) -> int:
        """The port it listens on. FatalError before the first start."""
        if self._port is None:
            raise FatalError(f"the embedded {self.name} was not started yet: call start()")
        return self._port

    @property
    def pid(self) -> int | None:
        """Process id, None when it does not run."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    @property
    def log(self) -> Path:
        """File that the server writes its output to."""
        return self.home / f"{self.name}.log"

    def start(self) -> Self:
        """Start and wait until it answers; one that is not waited for to the end is gone.

        FatalError with the log's end if it does not answer.
        """
        if self.pid is not None:
            return self
        self.home.mkdir(parents=True, exist_ok=True)
        for left in reversed(range(self.starts)):
            try:
                self._child = self._launch()
                is_ready = self._wait_ready(self._child)
            except BaseException:
                self.kill()
                raise
            if is_ready:
                return self
            self.kill()
            if not left or not self._is_worth_another_start():
                break
        raise FatalError(f"the embedded {self.name} did not start; the end of {self.log}:\n{self.log_end()}")

    def stop(self) -> None:
        """Stop it cleanly: SIGTERM, SIGKILL when it is still there after `stop_s`."""
        if self._child is not None:
            self._child.stop(self.stop_s)
            self._child = None

    def kill(self) -> None:
        """Kill it as a crash would (SIGKILL)."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def log_end(self, lines: int = 15) -> str:
        """Return the last lines of its output."""
        if not self.log.exists():
            return "(nothing was written)"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def _launch(self) -> ChildProcess:
        """Choose the port and start the process."""
        raise NotImplementedError

    def _is_answering(self) -> bool:
        """Tell whether clients are served."""
        raise NotImplementedError

    def _is_worth_another_start(self) -> bool:
        return True

    def _wait_ready(self, child: ChildProcess) -> bool:
        limit = time.monotonic() + self.ready_s
        while time.monotonic() < limit and child.returncode is None:
            if self._is_answering():
                return True
            child.wait(_POLL_S)
        return False
