"""`icebridge` commands, one after the other, in the tests' own process and Spark session: a start is paid for once.

    Workspace.run, Host.call -> connector.cli.main.main -> exit code, what it printed, and its log
Arguments, files, log lines and exit codes are those of the command line, and broker, catalog and tables are real. What
a start, a signal or a kill does is tested with processes (`Workspace.start`).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import structlog
from attrs import define, field, frozen
from pyspark.sql import SparkSession


@frozen
class Said:
    """A finished command."""

    code: int
    out: str
    log: str


@define(eq=False)
class Host:
    """Runs commands in this process, which has a session that they take for their own, and that none of them ends."""

    home: Path
    _count: int = 0
    _files: ExitStack = field(factory=ExitStack)

    def call(self, *arguments: str) -> Said:
        """Run `icebridge` with these arguments."""
        self._count += 1
        out, log = (self.home / f"{self._count}.{kind}" for kind in ("out", "log"))
        self._files.close()  # not at the end of a call: a thread that it left may have something to say
        to_out, to_log = (
            self._files.enter_context(path.open("w", encoding="utf-8", buffering=1)) for path in (out, log)
        )
        with _own_logging(), redirect_stdout(to_out), redirect_stderr(to_log):
            code = _code(arguments)
        return Said(code, *(path.read_text(encoding="utf-8") for path in (out, log)))

    def close(self) -> None:
        """Close the files."""
        self._files.close()


class _Warm:
    """The warm-up of a session that is warm."""

    def __init__(self, *_: object) -> None: ...

    def wait(self, _: float) -> bool:
        return True

    def close(self) -> None: ...


@contextmanager
def _own_logging() -> Iterator[None]:
    """Let a command set logging up as it does in a process of its own, and leave the session to those who come next."""
    root, known = logging.getLogger(), structlog.get_config()
    handlers, levels = list(root.handlers), {name: logging.getLogger(name).level for name in ("", "py4j", "opensearch")}
    hooks = sys.excepthook, threading.excepthook
    for handler in handlers:  # else the command closes them
        root.removeHandler(handler)
    with (
        mock.patch.object(SparkSession, "stop", lambda _: None),
        mock.patch("connector.sink.runner.WarmUpBeside", _Warm),
        mock.patch.dict(os.environ, {"COLUMNS": "300"}),
    ):
        try:
            yield
        finally:
            sys.excepthook, threading.excepthook = hooks
            logging.captureWarnings(False)
            structlog.configure(**known)
            root.handlers[:] = handlers
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


def _code(arguments: tuple[str, ...]) -> int:
    from connector.cli.main import main

    try:
        main(arguments, prog_name="icebridge")
    except SystemExit as end:
        return int(end.code or 0)
    except Exception:  # noqa: BLE001 - as Python itself ends
        traceback.print_exc()
        return 1
    return 0
