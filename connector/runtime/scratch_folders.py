"""A process -> folders of its own for what it needs while it runs, which nobody tidies away meanwhile.

systemd-tmpfiles removes from /tmp what nobody has touched for days, which is all that an idle connector has there. It
leaves alone what is below a folder with a lock (tmpfiles.d(5)).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "icebridge-"


def make_scratch(where: str | None = None) -> tuple[Path, int]:
    """Make a folder that only this user may enter; return it, and the open file whose lock keeps it."""
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=where)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with suppress(OSError):  # a file system without locks
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Path(folder), lock


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make such a folder, and remove it after the block."""
    folder, lock = make_scratch()
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)
