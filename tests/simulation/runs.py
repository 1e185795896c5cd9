"""Seeds -> what came of their stories, in this process or in several."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack

import attrs

from tests.simulation.capture_history import tell_capture
from tests.simulation.capture_story import make_capture_story
from tests.simulation.process import InlineExecutor, quiet
from tests.simulation.shrinking import Failure, tell
from tests.simulation.stories import SCRIPT, make_story

Tell = Callable[[int, str], Failure | None]


def tell_sink(seed: int, folder: str) -> Failure | None:
    """Go through the sink's story of a seed."""
    return tell(make_story(seed), folder)


def tell_source(seed: int, folder: str) -> Failure | None:
    """Go through the source's story of a seed."""
    return tell_capture(make_capture_story(seed), folder)


@attrs.frozen
class Run:
    """Some histories: those that were wrong by seed, and what they took of a processor."""

    first: int
    count: int
    failures: tuple[tuple[int, Failure], ...]
    cpu_s: float


def run_seeds(tell_seed: Tell, first: int, count: int, folder: str) -> Run:
    """Go through the stories of some seeds."""
    began = time.process_time()
    found = [(seed, failure) for seed in range(first, first + count) if (failure := tell_seed(seed, folder))]
    if (first + count) % SCRIPT == 0:
        # What is left are answers, which the next look for garbage need not go through.
        gc.collect()
        gc.freeze()
    return Run(first, count, tuple(found), time.process_time() - began)


def go_through(
    tell_seed: Tell, first: int, histories: int, seconds: float, processes: int, folder: str
) -> Iterator[Run]:
    """Go through seeds in their order, in parts, as many at once as there are processes."""
    until, end = time.monotonic() + seconds, first + histories
    with ExitStack() as stack:
        executor = stack.enter_context(_open_executor(processes))
        waiting: list[Future[Run]] = []
        at = first
        while at < end and time.monotonic() < until:
            # The time may be short: a part is a piece of a script only.
            count = min(SCRIPT // 4 - at % (SCRIPT // 4), end - at)
            waiting.append(executor.submit(run_seeds, tell_seed, at, count, folder))
            at += count
            if len(waiting) > 2 * (processes - 1):
                yield waiting.pop(0).result()
        yield from (one.result() for one in waiting)


def _open_executor(processes: int) -> ProcessPoolExecutor | InlineExecutor:
    if processes == 1:
        return InlineExecutor()
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(processes, context, initializer=_begin_process)


def _begin_process() -> None:
    """Be quiet for good; Ctrl-C is for the first process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _QUIET.enter_context(quiet())


_QUIET = ExitStack()
