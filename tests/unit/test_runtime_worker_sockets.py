"""Sockets between the JVM and Python's workers: where they are, and when there are none."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.runtime.scratch_folders import scratch_folder
from connector.runtime.spark import worker_sockets
from connector.runtime.spark.worker_sockets import SOCKET_FOLDER, SOCKETS, find_socket_settings


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path; pytest's own are long."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_sockets_are_in_a_folder_of_this_user_and_process(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else may enter it: who can connect is believed. Sessions of one process share it."""
    monkeypatch.setattr(tempfile, "tempdir", str(short))
    settings = find_socket_settings({})
    folder = Path(settings[SOCKET_FOLDER])
    assert (settings[SOCKETS], folder.parent, folder.stat().st_mode & 0o777) == ("true", short, 0o700)
    assert find_socket_settings({}) == settings
    assert len(str(folder / f".{'0' * 36}.sock").encode()) <= 103


@pytest.mark.parametrize("given", [{SOCKETS: "false"}, {SOCKETS: "true"}, {SOCKET_FOLDER: "/run"}])
def test_what_is_said_of_sockets_stays(given: dict[str, str]) -> None:
    """A user's word on them is the last."""
    assert find_socket_settings(given) == {}


def test_a_path_that_is_too_long_for_a_socket_is_left(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses such a socket; workers are then reached over TCP, and no folder is made."""
    far = short / ("x" * 40)
    far.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far))
    assert (find_socket_settings({}), list(far.iterdir())) == ({}, [])


def test_a_system_without_such_sockets_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no name for them there."""
    monkeypatch.delattr(worker_sockets.socket, "AF_UNIX")
    assert find_socket_settings({}) == {}


def test_a_folder_in_use_is_locked_against_who_tidies_up(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd-tmpfiles passes over folders with a lock; an idle sink has touched nothing there for days."""
    monkeypatch.setattr(tempfile, "tempdir", str(short))

    def is_locked(folder: Path) -> bool:
        tidier = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(tidier, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(tidier)
        return False

    assert is_locked(Path(find_socket_settings({})[SOCKET_FOLDER]))
    with scratch_folder() as folder:
        assert is_locked(folder)
    assert not folder.exists()
