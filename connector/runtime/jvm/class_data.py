"""what the driver's JVM is started with -> an archive of its classes in the cache, from which the next JVM takes them.

Java calls it class data sharing: classes of the archive are mapped into memory instead of being read from jars, parsed
and verified. An archive serves one Java with one class path; a JVM that is given another goes on without it.

    first run: list of loaded classes -> at its end, beside everything else: java -Xshare:dump -> archive
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
from attrs import frozen
from py4j.protocol import Py4JError

from connector.runtime.jvm.cache import cache_dir, make_token
from connector.runtime.jvm.java import JavaRuntime

TO_WRITE = "icebridge.class-list"
"""Java's property that tells where the JVM lists its classes; absent where there is an archive of them."""
NEWEST = 17
"""The newest Java that was seen to take an archive which was made so: 21 refuses it."""
KEPT = 4
"""So many archives stay in the cache (about 200 MB each): those used last."""
_MAGIC, _REFUSED = b"\xa2\xab\x0b\xf0", b"none"
_OWN_SHARING = (
    "-Xshare",
    "-XX:SharedArchiveFile",
    "-XX:ArchiveClassesAtExit",
    "-XX:+AutoCreateSharedArchive",
    "-XX:+RecordDynamicDumpInfo",
    "-XX:-UseSharedSpaces",
    "-XX:SharedClassListFile",
    "-XX:DumpLoadedClassList",
)
_ENVIRONMENT = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Variables whose options Java takes, and Spark's scripts hand to it."""
# Java tells on standard output, which is ours, why it does not use an archive.
_LOGGING = ("-Xlog:disable", "-Xlog:all=warning:stderr", "-Xlog:cds*=error:stderr")
_ABANDONED_S = 3600
# What waits for a run's end would wait for this too: it is nobody's child, and takes what others leave of the machine.
_DUMP = 'list=$1 aside=$2 archive=$3; shift 3; nice -n 19 "$@" && mv -f "$aside" "$archive"; rm -f "$list" "$aside"'


@frozen
class ClassData:
    """The archive of one Java and one class path."""

    archive: Path

    def is_given(self, options: Iterable[str]) -> bool:
        """Tell whether a JVM with these options was given the archive: no other one can refuse it."""
        return self._use in options

    @property
    def _use(self) -> str:
        return f"-XX:SharedArchiveFile={self.archive}"

    def options(self, *, lists_classes: bool) -> tuple[str, ...]:
        """Return the JVM's options: to use the archive, or to list what is to be in it; none where Java refused it.

        Removes a file that was not written to its end. OSError: the cache cannot be written.
        """
        head = _read_head(self.archive)
        if head == _REFUSED:
            return ()
        if head == _MAGIC:
            os.utime(self.archive)
            return (*_LOGGING, self._use)
        if not lists_classes:
            return ()
        self.archive.parent.mkdir(parents=True, exist_ok=True)
        self.archive.unlink(missing_ok=True)
        classes = self.archive.with_suffix(f".{make_token()}.list")
        return (*_LOGGING, f"-XX:DumpLoadedClassList={classes}", f"-D{TO_WRITE}={classes}")


def find_class_data(java: JavaRuntime, class_path: Iterable[Path], options: str) -> ClassData | None:
    """Return the archive for a JVM with these jars and options; None for a Java that takes none.

    None also where the options, or Java's own in the environment, say something of archives. Cost: a look at each jar.
    OSError: the cache cannot be written, or a jar is not there.
    """
    words = [*shlex.split(options), *(word for name in _ENVIRONMENT for word in os.environ.get(name, "").split())]
    if java.major > NEWEST or any(word.startswith(_OWN_SHARING) for word in words):
        return None
    release = java.home / "release"
    inputs = [str(java.home), str(java.major), release.read_text(encoding="utf-8") if release.exists() else ""]
    inputs += sorted(word for word in words if word.startswith("-X"))
    for jar in class_path:
        state = jar.stat()
        inputs.append(f"{jar} {state.st_size} {state.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    return ClassData(cache_dir() / "classes" / f"{digest}.jsa")


def _read_head(archive: Path) -> bytes:
    """Return what tells an archive that was written to its end, whose head Java writes last."""
    try:
        with archive.open("rb") as file:
            return file.read(len(_MAGIC))
    except OSError:
        return b""


def write_class_data(jvm: Any) -> subprocess.Popen[bytes] | None:
    """Begin to write the archive of a JVM that has listed its classes, once; return the process that does it.

    It takes about a minute of CPU, with the least priority, and goes on when this process ends. What goes wrong is
    only told.
    """
    try:
        system = jvm.java.lang.System
        list_file = system.getProperty(TO_WRITE)
        if list_file is None:
            return None
        system.clearProperty(TO_WRITE)
        classes, java = Path(list_file), Path(system.getProperty("java.home")) / "bin" / "java"
        archive = classes.parent / f"{classes.name.partition('.')[0]}.jsa"
        if archive.exists() or any(classes.parent.glob(f"{archive.stem}.*.listed")):
            classes.unlink()  # another run was faster, or is at it
            return None
        _tidy(classes.parent)
        return _dump(java, system.getProperty("java.class.path"), classes, archive)
    except (Py4JError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        structlog.get_logger().info("no archive of Java's classes is written: starts stay slow", reason=reason)
        return None


def _dump(java: Path, class_path: str, classes: Path, archive: Path) -> subprocess.Popen[bytes]:
    listed, aside = classes.with_suffix(".listed"), classes.with_suffix(".making")
    # The JVM is still writing to its list: the last line may be cut.
    listed.write_bytes(classes.read_bytes().rpartition(b"\n")[0] + b"\n")
    classes.unlink()
    own = [str(java), "-Xshare:dump", f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={aside}"]
    return _detach("sh", "-c", _DUMP, "sh", str(listed), str(aside), str(archive), *own, "-cp", class_path)


def _detach(*command: str) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=null, stdout=null, stderr=null, start_new_session=True)


def check_use(class_data: ClassData, pid: int) -> None:
    """Note down that a JVM does not use the archive that it was given: the next ones go without (Linux; some ms).

    Not for a JVM that was started before the archive was there (`ClassData.is_given`).
    """
    archive = class_data.archive
    with suppress(OSError):
        maps = (Path("/proc") / str(pid) / "maps").read_text(encoding="utf-8")
        if _read_head(archive) == _MAGIC and str(archive) not in maps:
            refused = archive.with_suffix(".making")
            refused.write_bytes(_REFUSED)
            refused.replace(archive)
            structlog.get_logger().info(
                "Java does not use the archive of its classes; remove it, and the next run writes another one",
                archive=str(archive),
            )


def _tidy(folder: Path) -> None:
    """Make room for one more archive, and remove what killed processes left behind."""
    archives: Sequence[Path] = sorted(folder.glob("*.jsa"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in archives[KEPT - 1 :]:
        file.unlink(missing_ok=True)
    for file in (one for kind in ("list", "listed", "making") for one in folder.glob(f"*.{kind}")):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > _ABANDONED_S:
                file.unlink()
