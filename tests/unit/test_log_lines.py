"""What libraries log -> the lines of a process."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

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
