"""npm's sources of librdkafka, PyPI's of confluent-kafka -> a folder for PYTHONPATH: a client that has Kerberos.

Confluent's wheels have none: this is what docs/how-to/kafka.md tells to do. npm packs librdkafka's sources for Node.js.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from connector.errors import FatalError
from connector.runtime.jvm.cache import cache_dir
from tests.interop.binlog_server import run_checked
from tests.interop.debian import ensure_library, find_program

_SOURCES = "@confluentinc/kafka-javascript@1.10.1"
"""Has librdkafka 2.15.1."""
_CLIENT = "confluent-kafka==2.15.0"
_BUILD_S = 900.0


def build_client() -> Path:
    """Return the folder, kept in the cache; it is made in some minutes where it is not there.

    FatalError: a registry, a compiler or a library cannot be had.
    """
    kept = cache_dir() / "kerberos-client" / _CLIENT
    if not kept.exists():
        ensure_library("*/libsasl2.so", "libsasl2-dev")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as made:
            _build(Path(made), kept)
    return kept


def _build(work: Path, kept: Path) -> None:
    run_checked((find_program("npm", "npm"), "pack", _SOURCES, "--pack-destination", str(work)), timeout_s=_BUILD_S)
    (packed,) = work.glob("*.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(work, filter="data")
    source, target = work / "package" / "deps" / "librdkafka", work / "target"
    _run(source, "bash", "configure", "--prefix", str(kept), "--enable-gssapi", "--disable-lz4-ext", "--disable-zstd")
    _run(source, "make", "-j2", "libs")
    _run(source, "make", "-C", "src", "install", f"DESTDIR={target}")
    library, headers = kept / "lib", target / kept.relative_to("/") / "include"
    shutil.copytree(target / kept.relative_to("/"), target / "all")
    flags = {
        "CFLAGS": f"-I{headers}",
        "LDFLAGS": f"-L{headers.parent / 'lib'} -Wl,-rpath,{library}",
    }
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-binary", "confluent-kafka")
    _run(work, *pip, "--target", str(target / "all"), _CLIENT, **flags)
    (target / "all").replace(kept)


def _run(folder: Path, *command: str, **environ: str) -> None:
    environment = {**os.environ, **environ}
    done = subprocess.run(
        command, cwd=folder, env=environment, timeout=_BUILD_S, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise FatalError(f"{' '.join(command)}: {done.stdout[-1000:]} {done.stderr[-2000:]}")
