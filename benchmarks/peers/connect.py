"""connector file -> table: a standalone worker of Kafka Connect until its table has every row, as a contender.

Run as `python -m benchmarks.peers.connect JOB.json`. A worker has no end: it is killed when the last row is visible.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.peers.commits import CommitWatch

PATIENCE_S = 120.0
_POLL_S = 0.05


def main(job_file: str) -> None:
    """Run the job's command until as many rows are visible as its topic has events."""
    job = json.loads(Path(job_file).read_text())
    watch = CommitWatch(Path(job["warehouse"]), job["table"])
    with subprocess.Popen(job["command"], stdin=subprocess.DEVNULL, stdout=sys.stderr) as worker:
        watch.start()
        try:
            wait(worker, watch, job["events"])
        finally:
            worker.kill()
    watch.tell(job["events"], job["offsets"])


def wait(worker: subprocess.Popen[bytes], watch: CommitWatch, events: int) -> None:
    """Return when all rows are there. RuntimeError when the worker ends before, or commits nothing for long."""
    while sum(watch.added) < events:
        if worker.poll() is not None:
            raise RuntimeError(f"the worker ended with exit code {worker.returncode}")
        if time.monotonic() - watch.changed_s > PATIENCE_S:
            raise RuntimeError(f"{sum(watch.added)} of {events} rows, and no commit for {PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)


if __name__ == "__main__":
    main(sys.argv[1])
