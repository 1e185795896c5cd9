"""Names of Debian's packages -> their programs, installed by apt-get where they are missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from connector.errors import FatalError
from tests.interop.binlog_server import run_checked

_INSTALL_S = 500.0
_PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
"""Debian keeps servers where only root looks for programs."""


def find_program(name: str, *packages: str) -> str:
    """Return a program's path, installing the packages that have it. FatalError when they cannot be."""
    found = shutil.which(name, path=_PLACES)
    if found is None:
        install(*packages)
        found = shutil.which(name, path=_PLACES)
    if found is None:
        raise FatalError(f"{', '.join(packages)} was installed but there is no {name}")
    return found


def ensure_library(pattern: str, *packages: str) -> None:
    """Install packages unless a file below /usr/lib has that name. FatalError when they cannot be."""
    if not any(Path("/usr/lib").glob(pattern)):
        install(*packages)
    if not any(Path("/usr/lib").glob(pattern)):
        raise FatalError(f"{', '.join(packages)} was installed but there is no /usr/lib/{pattern}")


def install(*packages: str) -> None:
    """Install packages. FatalError where that cannot be done."""
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise FatalError(f"this test needs Debian's {', '.join(packages)}: say apt-get install {' '.join(packages)}")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (("update",), ("install", "--yes", "--no-install-recommends", *packages)):
        run_checked(("apt-get", "-q", *words), environ=environ, timeout_s=_INSTALL_S)
