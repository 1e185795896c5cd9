"""command line -> child process that never outlives this one, however this one ends.

On Linux the child asks the kernel for SIGKILL at its parent's death (prctl(2), PR_SET_PDEATHSIG). That signal comes
when the *thread* that forked ends, so a thread of its own forks the child and stays with it. Elsewhere only `atexit`
is left.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

# Run between fork and exec by a bare interpreter (20 ms), because Python code in the forked copy of a threaded process
# may deadlock. The parent is compared to see a death that came before the request.
_TIE = """
import ctypes, os, sys
parent = int(sys.argv[1])
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)
    if os.getppid() != parent:
        sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ChildProcess:
    """A running child process; its output goes to a file."""

    def __init__(self, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
        """Start it. The first word of `command` is an absolute path. OSError when the log cannot be opened."""
        self.log = log
        self._command = (sys.executable, "-I", "-S", "-c", _TIE, str(os.getpid()), *command)
        self._environ = {**os.environ, **(environ or {})}
        self._started, self._ended = threading.Event(), threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OSError | None = None
        threading.Thread(target=self._keep, name="child-keeper", daemon=True).start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        """Process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code (negative: the signal), None while it runs."""
        assert self._process is not None
        return self._process.returncode if self._ended.is_set() else None

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, then SIGKILL when it is still there after `timeout_s`."""
        self._signal(signal.SIGTERM)
        if not self._ended.wait(timeout_s):
            self._signal(signal.SIGKILL)
        self._forget()

    def kill(self) -> None:
        """SIGKILL at once."""
        self._signal(signal.SIGKILL)
        self._forget()

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; tell whether it ended in time."""
        return self._ended.wait(timeout_s)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and not self._ended.is_set():
            self._process.send_signal(number)

    def _forget(self) -> None:
        self._ended.wait()
        atexit.unregister(self.kill)

    def _keep(self) -> None:
        try:
            with self.log.open("ab") as output:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._environ,
                    # Ctrl-C at the terminal is for the parent, which then stops its children in order.
                    start_new_session=True,
                )
        except OSError as error:
            self._failure = error
            return
        finally:
            self._started.set()
        self._process.wait()
        self._ended.set()
