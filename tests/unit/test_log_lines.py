"""What libraries log -> the lines of a process."""

from __future__ import annotations

import json
import logging
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import structlog
from py4j import java_gateway

from connector.runtime.monitoring.logs import configure_logging


@pytest.fixture
def handler() -> Iterator[logging.Handler]:
    """The handler of a process with our logging; pytest's are put back afterwards."""
    root = logging.getLogger()
    handlers, level, py4j = list(root.handlers), root.level, logging.getLogger("py4j").level
    hooks = sys.excepthook, threading.excepthook
    root.handlers.clear()
    configure_logging(terminal=False)
    yield root.handlers[0]
    sys.excepthook, threading.excepthook = hooks
    logging.captureWarnings(False)
    root.handlers[:], root.level = handlers, level
    logging.getLogger("py4j").setLevel(py4j)
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("module", "printed"), [(java_gateway.__file__, False), (__file__, True)], ids=["py4j", "other"]
)
def test_py4j_prints_nothing_of_a_jvm_that_ends(handler: logging.Handler, module: str, *, printed: bool) -> None:
    """Py4J logs a connection that the JVM closed through the root logger; the caller gets the error anyway."""
    record = logging.getLogger().makeRecord("root", logging.ERROR, module, 1, "while sending a command", (), None)
    assert bool(handler.filter(record)) is printed


@pytest.mark.parametrize("ends", ["raise", "raises in a thread", "warns"])
def test_every_line_that_machines_read_is_json(ends: str) -> None:
    """Warnings of Python and errors that nobody caught are lines of JSON as well, and show no secret."""
    does = {
        "raise": "raise ValueError('password=secret-word')",
        "raises in a thread": "thread = threading.Thread(target=lambda: 1 / int('0')); thread.start(); thread.join()",
        "warns": "warnings.warn('password=secret-word is old', stacklevel=1)",
    }[ends]
    head = "import threading, warnings; from connector.runtime.monitoring.logs import configure_logging"
    script = f"{head}\nconfigure_logging(terminal=False)\n{does}"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stderr
    lines = [json.loads(line) for line in told.splitlines()]
    assert len(lines) == 1
    assert "secret-word" not in told
    assert {"event", "level", "timestamp"} <= lines[0].keys()


_LIVE = """
import structlog, warnings
from connector.runtime.monitoring.logs import configure_logging
from connector.runtime.monitoring.status_line import StatusLine
configure_logging(terminal=True)
with StatusLine("waiting for events", terminal=True) as line:
    structlog.get_logger().warning("a line of ours")
    warnings.warn("a line of others")
    line.show_text("db.[/x]: snapshot published")
    line._progress.refresh()
"""


def test_lines_appear_above_the_live_line_of_a_terminal() -> None:
    """None is glued to the end of what is shown there, and a table's name with brackets is shown as it is."""
    leader, follower = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "60"}
    with subprocess.Popen([sys.executable, "-c", _LIVE], stderr=follower, env=environ) as process:
        os.close(follower)
        shown = bytearray()
        with suppress(OSError):  # the terminal's other end is closed
            while part := os.read(leader, 4096):
                shown += part
    os.close(leader)
    text = shown.decode()
    assert process.returncode == 0, text
    assert "db.[/x]: snapshot published" in text
    for line in ("a line of ours", "a line of others"):
        assert "waiting" not in text.partition(line)[0].rpartition("\x1b[2K")[2], line
