"""the pyspark package of any environment -> the same files in the cache folder, at a path that all clones share.

Java takes classes from an archive only where its jars stand at the paths that the archive was made with. The package is
in the environment of one clone, so that each new clone would start slowly, and make an archive of its own beside its
tests (a minute of CPU).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from connector.runtime.jvm.cache import cache_dir
from connector.runtime.spark.spark_home import find_spark_home

PARTS = ("bin", "jars", "python")
KEPT = 2
"""So many packages stay in the cache folder (450 MB each, where no environment has the same files)."""


def share_spark_home() -> None:
    """Set SPARK_HOME to the shared folder, unless it is set; it stays as it is where files cannot be linked."""
    if "SPARK_HOME" in os.environ:
        return
    with suppress(OSError):
        os.environ["SPARK_HOME"] = str(_link(find_spark_home(), cache_dir() / "spark"))


def _link(package: Path, shared: Path) -> Path:
    """Return the folder for files of these names and sizes, made of links to the package's; no copy is made."""
    found = (file for part in PARTS for file in (package / part).rglob("*"))
    # Compiled modules have the path of their environment.
    files = sorted(file for file in found if file.is_file() and file.suffix != ".pyc")
    names = [file.relative_to(package) for file in files]
    told = "\n".join(f"{name} {file.stat().st_size}" for name, file in zip(names, files, strict=True))
    home = shared / hashlib.sha256(told.encode()).hexdigest()[:16]
    if not home.is_dir():
        shared.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=shared, prefix="making-"))
        try:
            for name, file in zip(names, files, strict=True):
                (aside / name).parent.mkdir(parents=True, exist_ok=True)
                os.link(file, aside / name)
            with suppress(OSError):  # another process was faster
                aside.rename(home)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    os.utime(home)
    _tidy(shared)
    return home


def _tidy(shared: Path) -> None:
    homes = sorted(shared.glob("[0-9a-f]" * 16), key=lambda home: home.stat().st_mtime, reverse=True)
    for home in homes[KEPT:]:
        shutil.rmtree(home, ignore_errors=True)
