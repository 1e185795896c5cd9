"""A run that counts, ended by a signal -> its line of the tally."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

_RUN = """
import signal, sys, time
from pathlib import Path
from tests.harness.tally import add_line, end_on_signals
end_on_signals()
try:
    print("runs", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    add_line(Path(sys.argv[1]), {"histories": 3})
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_with_its_line(tmp_path: Path, number: signal.Signals) -> None:
    """SIGINT and SIGTERM do, also where the shell had started the run in the background and SIGINT is ignored."""
    tally = tmp_path / "tally.jsonl"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = subprocess.Popen([sys.executable, "-c", _RUN, str(tally)], stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with run:
        assert run.stdout is not None and run.stdout.readline() == "runs\n"
        run.send_signal(number)
    assert json.loads(tally.read_text())["histories"] == 3
