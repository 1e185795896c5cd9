"""A worker's import system between two tasks."""

from __future__ import annotations

import platform
import subprocess
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest

from connector.runtime.spark.python_workers import WorkerReports, forget_archives

pytestmark = pytest.mark.unit


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators decide by themselves")
def test_memory_that_is_freed_is_kept() -> None:
    """A worker takes the memory of each fetch from the kernel once; without it each page is taken anew."""
    code = (
        "import resource, numpy as np;"
        "from connector.runtime.spark.python_workers import keep_memory;"
        "{}"
        "take = lambda: [np.ones(48 << 20, np.uint8).sum() for _ in range(4)];"
        "take();"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt;"
        "take();"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
    )
    kept, usual = (
        int(subprocess.run([sys.executable, "-c", code.format(told)], check=True, capture_output=True).stdout)
        for told in ("keep_memory();", "")
    )
    assert kept * 10 < usual


def test_a_worker_starts_without_pandas_and_can_have_it() -> None:
    """What workers are forked from has not imported pandas; who asks Arrow for a frame gets one."""
    code = (
        "import sys, connector.worker_daemon, pyarrow, numpy;"
        "pyarrow.array(numpy.arange(3));"
        "before = 'pandas' in sys.modules;"
        "frame = pyarrow.table({'a': [1]}).to_pandas();"
        "print(before, type(frame).__module__.partition('.')[0], len(frame))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "pandas", "1"]


@pytest.mark.parametrize(
    ("error", "told"),
    [(BrokenPipeError(32, "x"), False), (ConnectionResetError(104, "x"), False), (OSError(5, "x"), True)],
)
def test_a_worker_says_nothing_where_spark_has_hung_up(
    error: Exception, told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A JVM that stops while a worker says its last words is no failure to report; anything else is."""
    try:
        raise error
    except OSError:
        WorkerReports.print_exc()
    assert ("Traceback" in capsys.readouterr().err) is told


def test_a_command_starts_without_pandas() -> None:
    """What a command imports before the JVM starts is none of what it may never need."""
    code = (
        "import sys; sys.argv = ['icebridge', 'run', '--help'];"
        "from connector.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: print('pandas' in sys.modules, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False True"


def test_archives_are_forgotten_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No finder of an archive is left to be refreshed, and modules in archives are imported as before."""
    archive = tmp_path / "shipped.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("shipped_one.py", "VALUE = 1")
        file.writestr("shipped_two.py", "VALUE = 2")
    monkeypatch.syspath_prepend(str(archive))
    import shipped_one

    assert any(isinstance(finder, zipimport.zipimporter) for finder in sys.path_importer_cache.values())
    forget_archives()
    assert not any(isinstance(finder, zipimport.zipimporter) for finder in sys.path_importer_cache.values())
    import shipped_two

    assert (shipped_one.VALUE, shipped_two.VALUE) == (1, 2)
