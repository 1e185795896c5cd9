"""Faults that other programs have, put in here on purpose: the simulation finds each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS, files_of_killed_runs_go_at_once
from tests.simulation.process import quiet
from tests.simulation.shrinking import Failure, tell
from tests.simulation.steps import Batch, Maintain, SourceStep, Story, TableStep, World, make_story, spread
from tests.tiers import tiered

pytestmark = [pytest.mark.unit, pytest.mark.timeout(600)]

WITHIN = 10_000
FREQUENT = (
    "vectors_forget",
    "small_transactions_lose_updates",
    "creates_are_doubled",
    "replayed_batches_are_not_filtered",
    "conversions_lose_deletes",
)
"""Found within a few histories."""


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """No log, one thread."""
    with quiet():
        yield


def _find(folder: str) -> Failure | None:
    told = (tell(make_story(seed), folder) for seed in spread(range(WITHIN)))
    return next((failure for failure in told if failure is not None), None)


@pytest.mark.parametrize("mutation", tiered(MUTATIONS, FREQUENT))
def test_a_known_fault_is_found(tmp_path: Path, mutation: str) -> None:
    """Within ten thousand histories one is wrong."""
    with MUTATIONS[mutation]():
        assert _find(str(tmp_path)) is not None


def test_files_stay_that_a_late_commit_may_name(tmp_path: Path) -> None:
    """A run of maintenance is killed, and its commit lands behind the next run: deleting its files at once is found."""
    killed = Maintain(("rewrite",), 3, ((14, "late"), (15, "crash")))
    steps = SourceStep("commits", 5), Batch(0, 1, whole=True), killed, Maintain(("convert",), 1)
    story = Story(World(), (*steps, TableStep("land late commits", 0)))
    assert tell(story, str(tmp_path)) is None
    with files_of_killed_runs_go_at_once():
        found = tell(story, str(tmp_path))
    assert found is not None and "is gone" in found.reason
