"""Two processes that keep the same file at the same time: neither is in the other's way."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from connector.runtime.jvm.cache import make_token
from connector.runtime.jvm.jars import copy_jars
from connector.runtime.jvm.java import VECTOR_MODULE, JavaRuntime, make_shim
from connector.runtime.jvm.lockfile import LOCK_FILE, parse_lockfile
from connector.runtime.spark import environment
from connector.runtime.spark.environment import write_archive
from connector.runtime.spark.packages import packages_zip

_REPLACE = Path.replace


def _interrupt(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Let another process of the same number do all of its work before this one moves its file into place."""
    monkeypatch.setattr("os.getpid", lambda: 1)

    def replace(file: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", _REPLACE)
        other()
        return _REPLACE(file, target)

    monkeypatch.setattr(Path, "replace", replace)


def test_two_containers_may_make_the_script_of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of one number, as containers with one cache have them, make the script for Java beside each other."""
    java = JavaRuntime(Path("/java"), 21, frozenset({"java.base"}))
    _interrupt(monkeypatch, lambda: make_shim(java, VECTOR_MODULE, tmp_path))
    home = make_shim(java, VECTOR_MODULE, tmp_path)
    assert [file.name for file in (home / "bin").iterdir()] == ["java"]


def test_two_containers_may_zip_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for the zip of our packages."""
    monkeypatch.setenv("ICEBRIDGE_CACHE", str(tmp_path))
    _interrupt(monkeypatch, packages_zip)
    archive = packages_zip()
    assert zipfile.ZipFile(archive).testzip() is None
    assert list(archive.parent.iterdir()) == [archive]


def test_two_containers_may_pack_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for the archive for executors."""
    monkeypatch.setattr(environment, "list_files", lambda: {"a.py": LOCK_FILE})
    target = tmp_path / "e.tar.gz"
    _interrupt(monkeypatch, lambda: write_archive(target))
    assert write_archive(target) == target.stat().st_size


def test_two_containers_may_fill_a_folder_of_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for jars that are copied into a folder."""
    (jar,) = parse_lockfile(LOCK_FILE.read_text("utf-8"))["postgresql"]
    given = tmp_path / "given"
    given.mkdir()
    (given / jar.file_name).write_bytes(b"jar")
    monkeypatch.setenv("ICEBRIDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("connector.runtime.jvm.jars.fetch_artifacts", lambda *_: (given / jar.file_name,))
    to = tmp_path / "to"
    _interrupt(monkeypatch, lambda: copy_jars(["postgresql"], to, lambda _: None))
    assert copy_jars(["postgresql"], to, lambda _: None) == 3
    assert [file.name for file in to.iterdir()] == [jar.file_name]


def test_no_two_processes_have_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of processes with one number have names of their own."""
    monkeypatch.setattr("os.getpid", lambda: 1)
    assert make_token() != make_token()
