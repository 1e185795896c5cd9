"""our own packages -> a zip that Python workers on other machines import them from."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

from connector.runtime.jvm.cache import cache_dir, name_draft

PACKAGES = ("connector", "serde")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def packages_root() -> Path:
    """Return the folder that holds our packages (a checkout or site-packages)."""
    return Path(__file__).resolve().parents[3]


def packages_zip() -> Path:
    """Return a zip of our packages in the cache, named after what it holds; made when missing (some ms)."""
    root = packages_root()
    files = sorted(
        file.relative_to(root)
        for package in PACKAGES
        for file in (root / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.as_posix()} {hashlib.sha256((root / file).read_bytes()).hexdigest()}\n".encode())
    target = cache_dir() / "packages" / f"icebridge-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        _write_zip(target, root, files)
    return target


def _write_zip(target: Path, root: Path, files: Sequence[Path]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = name_draft(target)
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.as_posix(), _EPOCH), (root / file).read_bytes())
    draft.replace(target)
