"""jars.lock -> a component that comes as one archive, unpacked in the cache folder once per checksum."""

from __future__ import annotations

import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from connector.errors import FatalError
from connector.runtime.jvm.cache import cache_dir
from connector.runtime.jvm.jars import fetch_jars, sha256_of


def unpack_archive(component: str) -> Path:
    """Return the folder with the archive's files, fetching and unpacking it when it is not there (2 s for 140 MB).

    FatalError: as `fetch_jars`, or a component that is no archive.
    """
    files = fetch_jars(component)
    if len(files) != 1 or not tarfile.is_tarfile(files[0]):
        raise FatalError(f"component {component!r} is no archive")
    home = cache_dir() / "archives"
    target = home / f"{component}-{sha256_of(files[0])[:16]}"
    if not target.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        # Unpacked aside and moved into place: another process, or a kill in the middle, never leaves half of it.
        with TemporaryDirectory(prefix=".unpack-", dir=home) as aside:
            with tarfile.open(files[0]) as archive:
                archive.extractall(Path(aside) / "all", filter="data")
            try:
                (Path(aside) / "all").rename(target)
            except OSError:
                if not target.is_dir():
                    raise
    return target
