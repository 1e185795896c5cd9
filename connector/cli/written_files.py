"""A file or folder that a command writes -> one line where that cannot be done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from connector.errors import FatalError


@contextmanager
def writing(target: Path, option: str) -> Iterator[None]:
    """Write inside; raises FatalError, with the option that names another place, where the system refuses it."""
    try:
        yield
    except OSError as wrong:
        raise FatalError(
            f"{target}: cannot be written ({wrong.strerror or wrong}); give {option} a place that can be"
        ) from wrong
