"""The keeper of the tests' servers: one for all processes, and none that is left behind."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.harness.paths import PROJECT
from tests.servers.shared import Servers

_USER = "import sys, time, pathlib; from tests.servers.shared import Servers\n"
_USER += "servers = Servers(pathlib.Path(sys.argv[1]))\n"
_USER += "servers.once('here', lambda: None); print('here', flush=True); time.sleep(600)"


def _keeper(home: Path) -> Path:
    return Path((home / "keeper").read_text(encoding="utf-8"))


def _is_gone(keeper: Path) -> bool:
    end = time.monotonic() + 60
    while keeper.exists() and time.monotonic() < end:
        time.sleep(0.02)
    return not keeper.exists()


def test_processes_share_a_keeper_that_ends_with_the_last_of_them(tmp_path: Path) -> None:
    """What is done once to the servers is done by the first, and again when they are other ones.

    A server that was prepared is the one that others find.
    """
    done: list[str] = []
    first, second = Servers(tmp_path), Servers(tmp_path)
    first.once("work", lambda: done.append("first"))
    second.once("work", lambda: done.append("second"))
    keeper = _keeper(tmp_path)
    first.prepare("registry")
    assert urllib.request.urlopen(f"{second.address('registry')}/subjects", timeout=5).status == 200
    assert first.address("registry") == second.address("registry")
    first.close()
    second.once("more", lambda: done.append("more"))
    second.close()
    assert _is_gone(keeper)
    third = Servers(tmp_path)
    third.once("work", lambda: done.append("third"))
    third.close()
    assert _is_gone(_keeper(tmp_path)) and _keeper(tmp_path) != keeper
    assert done == ["first", "more", "third"]


def test_a_process_that_is_killed_leaves_no_keeper_behind(tmp_path: Path) -> None:
    """The kernel closes its connection, which is the last one."""
    with subprocess.Popen(
        [sys.executable, "-c", _USER, str(tmp_path)], cwd=PROJECT, stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "here\n"
        assert _keeper(tmp_path).exists()
        user.kill()
    assert _is_gone(_keeper(tmp_path))
