"""A process group of a sink that was stopped -> it is waited for as long as something of it runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.runs.processes import Sink

pytestmark = pytest.mark.unit


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    """A sink whose group is a process that goes on until its input ends."""
    made = Sink.__new__(Sink)
    made._log = tmp_path / "s.log"
    made._log.touch()
    made.process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, start_new_session=True)
    return made


def test_who_has_ended_is_not_waited_for(sink: Sink) -> None:
    """Also where nobody asks for its exit code, as the first process of some containers does not."""
    with sink.process as process:
        assert process.stdin is not None
        with pytest.raises(TimeoutError, match=f"{process.pid}"):
            sink.wait_for_group(0)
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        sink.wait_for_group(0)
