"""folder -> place: a broker and a warehouse for one benchmark run, gone at its end unless they are to be kept."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from benchmarks.contenders import Place
from connector.demo.servers.kafka_broker import KafkaBroker


def open_console() -> Console:
    """Wide enough for the tables when nobody's terminal says how wide it is."""
    return Console(width=None if sys.stdout.isatty() else 170)


@contextmanager
def workplace(work: Path | None, keep: bool, console: Console) -> Iterator[Place]:
    """A place in a new folder of `work` (default: of the temporary folder), its broker running."""
    if work is not None:
        work.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="icebridge-bench-", dir=work)).resolve()
    try:
        (folder / "warehouse").mkdir()
        with KafkaBroker(folder / "broker") as broker:
            yield Place(folder, broker.bootstrap_servers, broker.pid)
    finally:
        if keep:
            console.print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
