"""Environment variables -> how thorough a run of the tests is, its examples and kills, and the seed of random ones."""

from __future__ import annotations

import os
import sys
import time

THOROUGH = bool(os.environ.get("ICEBRIDGE_THOROUGH"))
"""Whether this is `make test-all`."""


def kills(few: int) -> int:
    """How often a test kills what it tests: `few` times, or as often as ICEBRIDGE_KILLS says."""
    return int(os.environ.get("ICEBRIDGE_KILLS", few))


def draws(many: int) -> int:
    """How many examples a law draws: `many` in `make test-all`; in `make test` a fifth of them, ten at least."""
    return many if THOROUGH else max(many // 5, 10)


def told_seed() -> int | None:
    """ICEBRIDGE_SEED: a number, or the clock's for the word random; None where every test has its own fixed one."""
    told = os.environ.get("ICEBRIDGE_SEED")
    if told == "random":
        told = os.environ["ICEBRIDGE_SEED"] = str(time.time_ns() % 1_000_000)  # for the processes of this run too
    return int(told) if told else None


SEED = told_seed()
"""One for the whole process, so that what is printed repeats all of it."""


def seeded() -> int:
    """The seed of a test's random plan; it is printed, so that the plan can be repeated with ICEBRIDGE_SEED."""
    seed = SEED or 0
    sys.stdout.write(f"ICEBRIDGE_SEED={seed}\n")
    return seed
