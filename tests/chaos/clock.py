"""A connector's wall clock -> one that can be stepped while its processes run, by a library that a C compiler makes.

All processes that are started with `environ` share it, those that come later too. What counts time that passes stays.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tests.interop.binlog_server import run_checked
from tests.interop.debian import find_program

_BUILD_S = 60.0
_SHIFT = struct.Struct("=q")


def build_library(home: Path) -> Path:
    """Make the library in a folder. FatalError where there is no compiler, nor can one be installed."""
    library = home / "clock.so"
    compiler = find_program("cc", "gcc", "libc6-dev")
    source = Path(__file__).with_name("clock.c")
    run_checked((compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"), timeout_s=_BUILD_S)
    return library


class Clock:
    """The clock; right at first."""

    def __init__(self, file: Path, library: Path) -> None:
        """Keep how far it is off in a file."""
        self._file, self._library = file, library
        file.write_bytes(_SHIFT.pack(0))

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to go by it."""
        return {"LD_PRELOAD": str(self._library), "ICEBRIDGE_CLOCK": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Be off by so many seconds from now on."""
        with self._file.open("r+b") as file:
            file.write(_SHIFT.pack(seconds))
