"""A file or folder of this machine -> what Spark is told of it."""

from __future__ import annotations

from pathlib import Path


def name_locally(path: Path) -> str:
    """Return the path as Hadoop takes it, letter by letter: `%20` is no space to it."""
    return f"file://{path.absolute()}"
