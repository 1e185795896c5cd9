"""Histories of the simulated source: some of each run, those that were wrong, and faults that it has to find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.rounds import SEED
from tests.simulation.capture_history import tell_capture
from tests.simulation.capture_mutations import CAPTURE_MUTATIONS
from tests.simulation.capture_story import CaptureStory, CaptureWorld, Change, Poll, make_capture_story
from tests.simulation.planted import find
from tests.simulation.process import quiet
from tests.simulation.shrinking import shrink

pytestmark = [pytest.mark.unit, pytest.mark.timeout(300)]

EACH = 100


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """No log, one thread."""
    with quiet():
        yield


def test_every_change_of_a_table_is_told(tmp_path: Path) -> None:
    """Whatever crashes, lost answers, expiry, rollbacks and rewrites do: positions move over what is in the topic."""
    first = (SEED or 0) * 1_000_003
    for seed in range(first, first + EACH):
        failure = tell_capture(make_capture_story(seed), str(tmp_path))
        assert failure is None, f"seed {seed}\n{shrink(failure, str(tmp_path), tell_capture)}"  # type: ignore[arg-type]


def test_a_stop_has_a_reason_where_the_table_was_made_again(tmp_path: Path) -> None:
    """A snapshot of the table before cannot be read, and nothing is stored yet: the next start reads the new table."""
    again = (3, Change("make again", 733))
    story = CaptureStory(CaptureWorld(), (Change("insert", 967), Poll(6, (again,)), Change("insert", 4), Poll(9)))
    assert tell_capture(story, str(tmp_path)) is None


@pytest.mark.parametrize(("back", "at", "fate"), [(2, 5, "crash"), (1, 2, "twice")], ids=["killed", "unacknowledged"])
def test_a_rollback_while_a_snapshot_is_published_leaves_no_trace(
    tmp_path: Path, back: int, at: int, fate: str
) -> None:
    """The snapshot was read, is taken back, and published then; a kill follows before a position says so, or Kafka's
    acknowledgement is lost (docs/guarantees.md).
    """
    during = ((back, Change("roll back", 880)), (at, fate))
    steps = (Poll(2), Change("insert", 311), Change("insert", 538), Poll(1), Poll(6, during), Change("delete", 280))
    assert tell_capture(CaptureStory(CaptureWorld(), steps), str(tmp_path)) is None


@pytest.mark.thorough
def test_many_captures(tmp_path: Path) -> None:
    """Thousands of others."""
    first = (SEED or 0) * 1_000_003 + 1_000_000
    for seed in range(first, first + 10_000):
        failure = tell_capture(make_capture_story(seed), str(tmp_path))
        assert failure is None, f"seed {seed}\n{shrink(failure, str(tmp_path), tell_capture)}"  # type: ignore[arg-type]


@pytest.mark.parametrize("mutation", CAPTURE_MUTATIONS)
def test_a_known_fault_of_a_source_is_found(tmp_path: Path, mutation: str) -> None:
    """Within ten thousand histories an invariant does not hold, in a program that runs."""
    found = find(mutation, CAPTURE_MUTATIONS[mutation], str(tmp_path))
    assert found.is_found, found.row()
