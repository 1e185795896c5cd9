"""environment -> the one folder that caches live in (everything in it may be deleted at any time)."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from connector.errors import FatalError

CACHE = "ICEBRIDGE_CACHE"
"""Environment variable that names it."""


def cache_dir() -> Path:
    """Return the cache folder, made when missing.

    `ICEBRIDGE_CACHE`, else `icebridge` below `XDG_CACHE_HOME`, else below `~/.cache`.
    FatalError: it cannot be made, or this user has no home.
    """
    return make_folder(os.environ.get(CACHE), lambda: _base() / "icebridge", CACHE)


def _base() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def name_draft(target: Path) -> Path:
    """Return where to write a file that is then moved into place: beside it, under a name that nobody else chooses.

    Two containers with one folder may both be process 1.
    """
    return target.with_name(f".{target.name}.{make_token()}")


def make_token() -> str:
    """Return what tells this process's files from those of any other."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def make_folder(chosen: str | None, usual: Callable[[], Path], variable: str) -> Path:
    """Return the folder that the variable names, else the usual one, made when missing.

    FatalError: it cannot be made, or found.
    """
    try:
        folder = Path(chosen).expanduser() if chosen else usual()
        folder.mkdir(parents=True, exist_ok=True)
        return folder.absolute()
    except (OSError, RuntimeError) as error:  # a RuntimeError of pathlib's says that this user has no home
        raise FatalError(
            f"a folder to keep files in cannot be made: {error}; set {variable} to one that this user can write"
        ) from error
