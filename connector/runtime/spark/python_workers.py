"""A Spark Python worker, between its tasks -> one that starts the next task at once. On executors.

Before every task PySpark's worker calls `importlib.invalidate_caches()`, and Python 3.11 and 3.12 then read the
directory of every zip archive on the path again, once per package imported from it: 0.11 s a task with pyspark.zip and
Spark's own jar. After every task it collects garbage among all that was imported: 0.04 s.

Each fetch needs as much memory as the one before, some buffers of many megabytes. Given back and taken again, each of
their pages is zeroed by the kernel: that was a twentieth of what a worker spends.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import sys
import traceback
import zipimport
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MEMORY_ENVIRONMENT = {"MIMALLOC_PURGE_DELAY": "-1"}
"""Environment variables by which a worker keeps the memory that Arrow frees, read when Arrow is loaded."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 * 1024**2


class _NoPandas(MetaPathFinder):
    """Finds no pandas."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for pandas; leave all else to others."""
        if fullname == "pandas":
            raise ModuleNotFoundError("not needed yet", name=fullname)
        return None


def leave_pandas_out() -> None:
    """Have Arrow not look for pandas before it is asked for a frame: a fifth of what a first worker's start takes.

    Arrow imports it as soon as it makes an array of values, to see whether they are of it, and remembers if there is
    none.
    """
    if "pandas" in sys.modules:
        return
    absent = _NoPandas()
    sys.meta_path.insert(0, absent)
    try:
        pyarrow = importlib.import_module("pyarrow")
        pyarrow.array([])
    finally:
        sys.meta_path.remove(absent)


@cache
def keep_memory() -> None:
    """Keep the memory that this process frees, up to 256 MiB, for what it needs next; only glibc can be told so."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            library.mallopt(option, _KEPT_BYTES)


def forget_archives() -> None:
    """Drop the finders of zip archives from the import system's cache; an import that needs one makes it again."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


class WorkerReports:
    """What PySpark's daemon uses of `traceback`: it reports every error of a worker, but that Spark has hung up on it.

    A JVM that stops does so while a worker says its last words; a newcomer took the report for a failure.
    """

    format_exc = staticmethod(traceback.format_exc)

    @staticmethod
    def print_exc() -> None:
        """Print the error that is handled now, as `traceback.print_exc` does."""
        if not isinstance(sys.exception(), BrokenPipeError | ConnectionResetError):
            traceback.print_exc()


def configure_worker() -> None:
    """Make this process, with all that it has imported, one that workers are forked from cheaply."""
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".jar")]
    forget_archives()
    gc.collect()
    gc.freeze()
