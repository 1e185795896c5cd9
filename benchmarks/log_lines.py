"""event and figures -> a JSON line on stderr, as the connector says its own."""

from __future__ import annotations

import json
import sys


def say(event: str, **figures: object) -> None:
    """One JSON line on stderr."""
    sys.stderr.write(json.dumps({"event": event, **figures}) + "\n")
    sys.stderr.flush()
