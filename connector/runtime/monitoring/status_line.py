"""Texts -> one live line of a terminal: what a run does now, and for how long."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class StatusLine:
    """A live line on stderr while it is entered; without a terminal there is none, and `show_text` returns False."""

    def __init__(self, waiting: str, *, terminal: bool) -> None:
        """Begin with what is waited for."""
        # Names of tables are the texts of others: brackets in them are no markup.
        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        # Lines of the log, which appear above this one, are wrapped by the terminal alone, as they are without it.
        self._progress = Progress(*columns, console=Console(stderr=True, soft_wrap=True)) if terminal else None
        self._task = self._progress.add_task(waiting, total=None) if self._progress else None

    def __enter__(self) -> Self:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def show_text(self, text: str) -> bool:
        """Show a text; False where there is no line to show it on."""
        if self._progress is None or self._task is None:
            return False
        self._progress.update(self._task, description=text)
        return True
