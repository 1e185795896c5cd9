"""environment -> the one folder that caches live in (everything in it may be deleted at any time)."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the cache folder, made when missing.

    `ICEBRIDGE_CACHE`, else `icebridge` below `XDG_CACHE_HOME`, else below `~/.cache`.
    """
    chosen = os.environ.get("ICEBRIDGE_CACHE")
    if chosen:
        folder = Path(chosen).expanduser()
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "icebridge"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.absolute()
