"""Histories that were run -> a line of JSON each time, in a file that adds up over runs of one code."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import attrs


@attrs.frozen
class Tally:
    """One run: its first seed, how many histories, how many of them were wrong, and seconds."""

    first_seed: int
    histories: int
    wrong: int
    seconds: float

    def add_to(self, file: Path) -> None:
        """Append it, with the time and the commit of the code."""
        line = {
            "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
            "commit": _commit(),
            **attrs.asdict(self),
            "seconds": round(self.seconds, 1),
        }
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"
