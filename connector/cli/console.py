"""Tables of a command -> Rich's console: as wide as they are where no window bounds them, as in a pipe or a log.

What is in them is the texts of others, reasons and names and values of rows: brackets in them are no markup.
"""

from __future__ import annotations

import os

from rich.console import Console

_WIDE = 1000


def open_console() -> Console:
    """Return a console on standard output."""
    console = Console(markup=False, emoji=False)
    is_bounded = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    return console if is_bounded else Console(width=_WIDE, markup=False, emoji=False)
