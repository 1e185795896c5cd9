"""A folder -> a file system of its own in memory, which can be full; it is gone with the last process that sees it.

Only root may mount one; elsewhere the disk is never full. `in_own_mounts` starts this program again in a namespace of
mounts of its own, so that nothing stays mounted when it is killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

_SIZE = "4g"
_TRIES = 10
"""Between looking and making it small, a file may have grown."""
_TOLD = "ICEBRIDGE_CHAOS_MOUNTS"


def in_own_mounts(arguments: list[str]) -> None:
    """Run `python -m tests.chaos` again in a namespace of its own, in place of this one, where that can be done."""
    unshare = shutil.which("unshare")
    if _TOLD in os.environ or unshare is None or os.getuid() != 0:
        return
    tried = subprocess.run([unshare, "--mount", "true"], capture_output=True, check=False)
    if tried.returncode == 0:
        command = [unshare, "--mount", "--propagation", "private", sys.executable, "-m", "tests.chaos", *arguments]
        os.execve(unshare, command, {**os.environ, _TOLD: "1"})


class SmallDisk:
    """The file system."""

    def __init__(self, folder: Path) -> None:
        """Describe it; nothing is mounted yet."""
        self.folder = folder
        self.is_mounted = False

    def fill(self) -> None:
        """Leave no byte free: the file system becomes as small as what is in it."""
        for _ in range(_TRIES):
            now = os.statvfs(self.folder)
            if self._mount("remount", str((now.f_blocks - now.f_bfree) * now.f_frsize)):
                return

    def free(self) -> None:
        """Let it be large again."""
        if self.is_mounted:
            self._mount("remount", _SIZE)

    def __enter__(self) -> Self:
        """Mount it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if _TOLD in os.environ:
            self.is_mounted = self._mount("rw", _SIZE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unmount it."""
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], capture_output=True, check=False)

    def _mount(self, how: str, size: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", f"{how},size={size}", "icebridge-chaos", str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
