"""Tables of a command -> Rich's console: as wide as they are where no window bounds them, as in a pipe or a log."""

from __future__ import annotations

import os

from rich.console import Console

_WIDE = 1000


def open_console() -> Console:
    """Return a console on standard output."""
    console = Console()
    is_bounded = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if is_bounded else Console(width=_WIDE)
