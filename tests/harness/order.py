"""Recorded durations -> the order of the tests' files: the longest first, so that two processes end together.

`make durations` records them anew.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict

import pytest

from tests.harness.paths import PROJECT

DURATIONS = PROJECT / "tests" / "durations.json"
"""File -> the seconds that its tests of each tier take: those of `make test`, and those of `make test-all` alone."""
TEST, THOROUGH = "test", "thorough"
UNKNOWN_S = 20.0
"""What a file takes of which nothing is known."""


def put_in_order(items: list[pytest.Item]) -> None:
    """Sort by what the files take, tests of a file as they stand there; only the tiers count that are to run.

    mutmut gives the quickest tests first by itself: most faults need no other.
    """
    if os.environ.get("MUTANT_UNDER_TEST"):
        return
    known = _read()
    tiers: dict[str, set[str]] = defaultdict(set)
    for item in items:
        tiers[_file(item.nodeid)].add(THOROUGH if item.get_closest_marker(THOROUGH) else TEST)
    takes = {file: sum(known.get(file, {}).get(tier, UNKNOWN_S) for tier in found) for file, found in tiers.items()}
    items.sort(key=lambda item: -takes[_file(item.nodeid)])


class Stopwatch:
    """Writes down what each file takes; files and tiers that did not run keep what was known of them."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], float] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up a test's setup, call and teardown."""
        tier = THOROUGH if THOROUGH in report.keywords else TEST
        self._taken[_file(report.nodeid), tier] += report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file, in the process that hears of all tests."""
        if hasattr(session.config, "workerinput"):
            return
        known = {file: tiers for file, tiers in _read().items() if (PROJECT / file).exists()}
        for (file, tier), seconds in self._taken.items():
            known.setdefault(file, {})[tier] = round(seconds, 1)
        DURATIONS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n", encoding="utf-8")


def _read() -> dict[str, dict[str, float]]:
    known: dict[str, dict[str, float]] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return known


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
