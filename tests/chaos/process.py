"""A connector's properties -> `icebridge run` in processes of its own, one after the other: killed, stopped, watched.

The process ends with this one, however this one ends; its JVM ends with it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from connector.demo.servers.process import ChildProcess
from tests.chaos.clock import Clock
from tests.chaos.moments import Moment

STEPS = ('"batch committed"', '"part read"', '"snapshot published"')
_LAST_LINES = 30
_WORKERS = "worker_daemon"


class ConnectorProcess:
    """One connector; `ended` tells of an end that nobody asked for."""

    def __init__(
        self,
        name: str,
        properties: dict[str, str],
        home: Path,
        clock: Clock | None = None,
        moments: Sequence[Moment] = (),
    ) -> None:
        """Describe it; nothing runs yet. `clock` is the one that it goes by, the machine's by default."""
        self.name, self.clock, self.moments, self._home = name, clock, moments, home
        self._file = home / f"{name}.properties"
        text = "".join(f"{key}={value}\n" for key, value in properties.items()).replace("\\", "\\\\")
        self._file.write_text(text, encoding="utf-8")
        self._child: ChildProcess | None = None
        self.starts = self._earlier = 0

    @property
    def is_running(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._child is not None and self._child.returncode is None

    @property
    def log(self) -> Path:
        """What the process of now writes to."""
        return self._home / f"{self.name}-{self.starts}.log"

    def start(self) -> None:
        """Start it, unless it runs."""
        if not self.is_running:
            self._earlier += self.steps()
            self.starts += 1
            environ = None if self.clock is None else self.clock.environ
            self._child = ChildProcess(self._command(), self.log, environ)

    def steps(self) -> int:
        """How many batches, or snapshots, this process has committed."""
        return _count_steps(self.log)

    def all_steps(self) -> int:
        """How many all of its processes have committed."""
        return self._earlier + self.steps()

    def ended(self) -> int | None:
        """The exit code of a process that ended by itself; None where it runs, or was ended."""
        return None if self._child is None else self._child.returncode

    def log_end(self) -> str:
        """The last lines that it wrote."""
        if not self.log.exists():
            return "(nothing was written)"
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:])

    def kill(self) -> int | None:
        """SIGKILL to all of its processes at once; the exit code, which is another where it had ended by itself."""
        family, child = self.family(), self._child
        self._child = None
        send(family, signal.SIGKILL)
        return None if child is None else _end(child)

    def kill_driver(self) -> int | None:
        """SIGKILL to the first of its processes alone; the exit code, as of `kill`."""
        child, self._child = self._child, None
        return None if child is None else _end(child)

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self._child is not None and self._child.returncode is None:
            os.kill(self._child.pid, signal.SIGTERM)

    def await_end(self, timeout_s: float) -> int | None:
        """Wait for its end; the exit code, None where it still runs."""
        child = self._child
        return child.returncode if child is not None and child.wait(timeout_s) else None

    def stop(self, timeout_s: float) -> int | None:
        """SIGTERM; its exit code, None where it had to be killed."""
        if self._child is None:
            return 0
        self.ask_to_stop()
        code = self.await_end(timeout_s)
        self.kill()
        return code

    def family(self) -> list[psutil.Process]:
        """Its processes: Python, the JVM, Python's workers."""
        return family_of(self._child.pid) if self._child is not None and self.is_running else []

    def jvm(self) -> psutil.Process | None:
        """Its JVM, once there is one."""
        return next((one for one in self.family()[1:] if _name(one) == "java"), None)

    def workers(self) -> list[psutil.Process]:
        """Python's workers, and the process that they come from."""
        return [one for one in self.family()[1:] if _WORKERS in _command_line(one)]

    def _command(self) -> tuple[str, ...]:
        return (sys.executable, "-m", "connector", "run", str(self._file))


def _end(child: ChildProcess) -> int | None:
    child.kill()
    return child.returncode


def _count_steps(log: Path) -> int:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return sum(text.count(step) for step in STEPS)


def family_of(pid: int) -> list[psutil.Process]:
    """A process and all that come from it."""
    with suppress(psutil.NoSuchProcess):
        own = psutil.Process(pid)
        return [own, *own.children(recursive=True)]
    return []


def send(family: Iterable[psutil.Process], number: signal.Signals) -> int:
    """Send a signal to processes, some of which may be gone; to how many it went."""
    sent = 0
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.send_signal(number)
            sent += 1
    return sent


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs: one that has ended, and that nobody has asked for its exit code yet, does not."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False


def spent(process: psutil.Process) -> float:
    """The seconds of CPU that a process has taken; none where it is gone."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return process.name()
    return ""


def _command_line(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""
