"""A session on this machine -> a folder of its own for the sockets between the JVM and Python's workers.

Over TCP, Spark's default, the JVM sends a task's command and what follows it in two small writes, and the second waits
for the first one's acknowledgement: 40 ms for each task, in which nothing happens (Nagle's algorithm, delayed
acknowledgements; docs/decisions/0092-sockets-of-workers.md). Sockets of files know neither.
"""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from connector.runtime.scratch_folders import make_scratch

SOCKETS = "spark.python.unix.domain.socket.enabled"
SOCKET_FOLDER = "spark.python.unix.domain.socket.dir"
_LONGEST_FOLDER = 55
"""Bytes. A socket's whole path has at most 103 of them on some systems, and its file's name has 42 (a dot, a uuid)."""


def find_socket_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings of sockets for a session on this machine; none where they say something of them already,
    or there can be none.
    """
    if SOCKETS in given or SOCKET_FOLDER in given or not hasattr(socket, "AF_UNIX"):
        return {}
    folder = _make_folder(tempfile.gettempdir())
    return {} if folder is None else {SOCKETS: "true", SOCKET_FOLDER: folder}


@cache
def _make_folder(where: str) -> str | None:
    """Make a folder that only this user may enter, as who connects to a socket needs no password; None for too long
    a path. It ends with this process.
    """
    prefix = str(Path(where) / "icebridge-")
    if len(prefix.encode()) + len("12345678") > _LONGEST_FOLDER:
        return None
    folder, _ = make_scratch(where)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)
