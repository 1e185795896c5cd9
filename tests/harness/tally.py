"""What was run -> a line of JSON, in a file that adds up over runs of one code."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path


def end_on_signals() -> None:
    """Have SIGTERM end a run as Ctrl-C does, by KeyboardInterrupt: what was counted is not lost.

    Ctrl-C's signal is ignored by what a shell starts in the background.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def add_line(file: Path, counts: Mapping[str, object]) -> None:
    """Append figures, with the time and the commit of the code."""
    line = {"at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"), "commit": _commit(), **counts}
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"
