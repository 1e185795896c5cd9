"""`icebridge` commands, one after the other, in one process with one Spark session: what a start costs is paid once.

    Workspace.run, Host.call -> a request on stdin -> connector.cli.main.main -> the exit code on stdout
Arguments, files, log lines and exit codes are those of the command line, and broker, catalog and tables are real. What
a start, a signal or a kill does is tested with processes (`Workspace.start`).
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from attrs import frozen

PROJECT = Path(__file__).parent.parent


@frozen
class Said:
    """A finished command."""

    code: int
    out: str
    log: str


class Host:
    """Runs commands; the process starts with the first one, and again after one that did not end."""

    def __init__(self, home: Path) -> None:
        """Keep output in `home`."""
        self._home, self._count = home, 0
        self._process: subprocess.Popen[str] | None = None

    def call(self, *arguments: str, timeout_s: float = 240) -> Said:
        """Run `icebridge` with these arguments. TimeoutError with the end of its log when it does not end."""
        self._count += 1
        out, log = (self._home / f"{self._count}.{kind}" for kind in ("out", "log"))
        process = self._process = self._process or _started(self._home / "host.log")
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps({"arguments": arguments, "out": str(out), "log": str(log)}) + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            answer = process.stdout.readline() if ready.select(timeout_s) else ""
        said = [path.read_text(encoding="utf-8", errors="replace") if path.exists() else "" for path in (out, log)]
        if not answer:
            self.close()
            raise TimeoutError(f"the command did not end within {timeout_s} s:\n{said[1][-4000:]}")
        return Said(int(answer), *said)

    def close(self) -> None:
        """End the process and its JVM."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
            self._process = None


def _started(log: Path) -> subprocess.Popen[str]:
    with log.open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.host"],
            cwd=PROJECT,
            env={**os.environ, "COLUMNS": "300"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def _serve() -> None:
    """Answer requests until there are no more."""
    from pyspark.sql import SparkSession

    SparkSession.stop = lambda _: None  # type: ignore[method-assign]
    with os.fdopen(os.dup(1), "w") as answers:
        for line in sys.stdin:
            request = json.loads(line)
            with open(request["out"], "wb") as out, open(request["log"], "wb") as log:  # noqa: PTH123 - a text has it
                os.dup2(out.fileno(), 1)
                os.dup2(log.fileno(), 2)
            answers.write(f"{_code(request['arguments'])}\n")
            answers.flush()


def _code(arguments: list[str]) -> int:
    from connector.cli.main import main

    try:
        main(arguments, prog_name="icebridge")
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:  # noqa: BLE001 - as Python itself ends
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    _serve()
