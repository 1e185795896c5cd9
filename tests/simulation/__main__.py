"""`python -m tests.simulation`: go through histories, one seed after the other; tell what is wrong, shrunk.

--source        the source's histories; without it the sink's
--seed N        only this one, told in full
--first N       begin with this seed (default: by the clock)
--histories N   so many (default: without end)
--seconds S     for so long
--processes N   in so many processes (default: 1)
--go-on         do not end with the first that is wrong: tell one of each kind
--tally FILE    add a line with what was run
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.harness.tally import end_on_signals
from tests.simulation.capture_history import tell_capture
from tests.simulation.capture_story import make_capture_story
from tests.simulation.process import quiet
from tests.simulation.runs import go_through, tell_sink, tell_source
from tests.simulation.shrinking import Failure, shrink, tell
from tests.simulation.stories import make_story
from tests.simulation.tally import Tally

SHOWN_EVERY_S = 10
MOST = 1 << 40


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 where a history was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, default=None)
    parser.add_argument("--histories", type=int, default=MOST)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--go-on", action="store_true")
    parser.add_argument("--tally", type=Path)
    told = parser.parse_args(arguments)
    with quiet(), tempfile.TemporaryDirectory(prefix="simulation-") as folder:
        if told.seed is not None:
            return _tell_one(told.seed, folder, source=told.source)
        first = told.first if told.first is not None else int(time.time()) % 10**9
        return _run(first, told, folder)


def _tell_one(seed: int, folder: str, *, source: bool) -> int:
    failure = (tell_source if source else tell_sink)(seed, folder)
    if failure is None:
        _say(f"{make_capture_story(seed) if source else make_story(seed)}\nseed {seed}: every invariant held")
        return 0
    _say(f"{failure}\n\nshrunk:\n{_shrunk(failure, folder, source=source)}")
    return 1


def _shrunk(failure: Failure, folder: str, *, source: bool) -> Failure:
    again: Any = tell_capture if source else tell
    return shrink(failure, folder, again)


def _run(first: int, told: argparse.Namespace, folder: str) -> int:
    began = shown = time.monotonic()
    done = wrong = 0
    cpu_s = 0.0
    kinds: set[str] = set()
    try:
        tell_seed = tell_source if told.source else tell_sink
        for run in go_through(tell_seed, first, told.histories, told.seconds, told.processes, folder):
            done, cpu_s, wrong = done + run.count, cpu_s + run.cpu_s, wrong + len(run.failures)
            for seed, failure in run.failures:
                _tell_new(seed, failure, kinds, folder, source=told.source)
            if time.monotonic() - shown > SHOWN_EVERY_S:
                shown = time.monotonic()
                _say(f"{done} histories, {done / (shown - began) * 60:.0f} a minute")
            if wrong and not told.go_on:
                break
    except KeyboardInterrupt:
        pass
    took = time.monotonic() - began
    per_thousand = cpu_s / done * 1000 if done else 0.0
    _say(
        f"seeds {first} to {first + done - 1}: {done} histories in {took:.0f} s, {wrong or 'none'} wrong; "
        f"{per_thousand:.1f} s of a processor for a thousand"
    )
    if told.tally is not None:
        Tally(first, done, wrong, took, "source" if told.source else "sink").add_to(told.tally)
    return int(wrong > 0)


def _tell_new(seed: int, failure: Failure, kinds: set[str], folder: str, *, source: bool) -> None:
    """Shrink a failure of a kind that was not there yet; the time that it takes is no history's."""
    _say(f"\nseed {seed} is wrong: {failure.reason}")
    if failure.kind not in kinds:
        kinds.add(failure.kind)
        _say(f"shrunk (all of it: --seed {seed}):\n{_shrunk(failure, folder, source=source)}\n")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
