"""Faults that other programs have, put in here on purpose: the simulation finds each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.tiers import tiered
from tests.simulation.answers import forget_all
from tests.simulation.found_moves import FOUND_MOVES
from tests.simulation.history import History
from tests.simulation.move_mutations import MOVE_MUTATIONS, partitions_of_grown_topics_are_read_unevenly
from tests.simulation.mutations import MUTATIONS, Mutation, files_of_killed_runs_go_at_once
from tests.simulation.planted import find
from tests.simulation.process import quiet
from tests.simulation.rare_mutations import BESIDE_FOUND, GROWN
from tests.simulation.rule_mutations import RULE_MUTATIONS
from tests.simulation.shrinking import tell
from tests.simulation.steps import Batch, KafkaStep, Maintain, SourceStep, Story, TableStep, World
from tests.simulation.world_mutations import (
    WORLD_MUTATIONS,
    deletes_without_a_row_are_told_to_no_table,
    rollbacks_behind_truncates_pass,
    rollbacks_of_truncates_pass,
)

pytestmark = [pytest.mark.unit, pytest.mark.timeout(600)]

FREQUENT = (
    "vectors_forget",
    "small_transactions_lose_updates",
    "creates_are_doubled",
    "replayed_batches_are_not_filtered",
    "conversions_lose_deletes",
    "busy_nodes_are_taken_for_done",
)
"""Found within a few histories."""

PLANTED = {**MUTATIONS, **WORLD_MUTATIONS, **MOVE_MUTATIONS}


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """No log, one thread."""
    with quiet():
        yield


def _tell_with(fault: Mutation, story: Story, folder: Path) -> str:
    """What is wrong in a story with a fault, which ends well without it."""
    assert tell(story, str(folder)) is None
    forget_all()
    with fault():
        found = tell(story, str(folder))
    forget_all()
    assert found is not None
    return found.reason


@pytest.mark.parametrize("mutation", tiered(PLANTED, FREQUENT))
def test_a_known_fault_is_found(tmp_path: Path, mutation: str) -> None:
    """Within ten thousand histories an invariant does not hold, in a program that runs."""
    found = find(mutation, PLANTED[mutation], str(tmp_path))
    assert found.is_found, found.row()


def test_files_stay_that_a_late_commit_may_name(tmp_path: Path) -> None:
    """A run of maintenance is killed, and its commit lands behind the next run: deleting its files at once is found."""
    killed = Maintain(("rewrite",), 3, ((15, "late"), (16, "crash")))
    steps = SourceStep("commits", 5), Batch(0, 1, whole=True), killed, Maintain(("convert",), 1)
    story = Story(World(), (*steps, TableStep("land late commits", 0)))
    assert "is gone" in _tell_with(files_of_killed_runs_go_at_once, story, tmp_path)


_MODES = [World(keep_deletes=True), World(), World(mode="copy-on-write"), World(mode="position-delete")]


@pytest.mark.parametrize("world", _MODES, ids=lambda world: f"{world.mode}-{world.keep_deletes}")
def test_a_table_that_is_rolled_back_behind_a_truncate_is_emptied_again(tmp_path: Path, world: World) -> None:
    """Rows of a truncate go in a commit of their own: a batch lands on nothing that lacks it, whenever it went."""
    before = SourceStep("commit", 435), Batch(0, 1, whole=True), SourceStep("truncate", 852)

    def count_wrong(*behind: SourceStep) -> int:
        last = (Batch(0, 1, whole=True, during=((call, TableStep("roll back", 499)),)) for call in range(8, 18))
        return sum(tell(Story(world, (*before, *behind, one)), str(tmp_path)) is not None for one in last)

    assert count_wrong() == count_wrong(SourceStep("commit", 77)) == 0
    forget_all()
    with rollbacks_of_truncates_pass():
        assert count_wrong()
    forget_all()
    with rollbacks_behind_truncates_pass():
        # Where deletes were left out, as no row could have their keys, Iceberg itself refuses to look behind its base.
        assert count_wrong() or world.mode == "equality-delete"
    forget_all()


@pytest.mark.parametrize(("world", "commit"), [(World(keep_deletes=True), 9), (World(), 6)], ids=["marks", "deletes"])
def test_a_truncates_own_commit_that_is_rolled_back_stops_nothing(tmp_path: Path, world: World, commit: int) -> None:
    """Nobody answers it, and the table is rolled back to the sink's newest commit before it is looked for."""
    during = ((commit, "lost"), (commit + 1, TableStep("roll back", 499)))
    before = SourceStep("commit", 435), Batch(0, 1, whole=True), SourceStep("truncate", 852)
    history = History(Story(world, (*before, Batch(0, 1, whole=True, during=during))), str(tmp_path))
    history.run()
    assert "rolled back" in history.reasons
    assert not [told for told in history.events if "stops" in told]


def test_a_delete_of_no_row_stops_at_what_a_second_sink_has_written(tmp_path: Path) -> None:
    """The second one put the row there and ended; of its delete, which finds no row, compaction left the tombstone."""
    steps = (
        SourceStep("commit", 370),
        Batch(1, 2, whole=True),
        SourceStep("read", 939),
        SourceStep("commit", 350),
        Batch(0, 4, whole=True),
        SourceStep("commits", 248),
        Batch(1, 7),
        KafkaStep("compact topic", 869),
        Batch(0, 7),
    )
    story = Story(World(topics=2), steps)
    assert "must be not there" in _tell_with(deletes_without_a_row_are_told_to_no_table, story, tmp_path)


@pytest.mark.parametrize("mutation", RULE_MUTATIONS)
def test_each_condition_of_a_commit_of_maintenance_counts(tmp_path: Path, mutation: str) -> None:
    """A story that ends well goes wrong once a condition is left out, by which maintenance may commit."""
    without_it, story, wrong = RULE_MUTATIONS[mutation]
    assert wrong in _tell_with(without_it, story, tmp_path)


@pytest.mark.parametrize("mutation", BESIDE_FOUND)
def test_a_fault_that_is_too_rare_for_a_search_has_a_story(tmp_path: Path, mutation: str) -> None:
    """The story ends well without the fault, and goes wrong with it."""
    fault, story, wrong = BESIDE_FOUND[mutation]
    assert wrong in _tell_with(fault, story, tmp_path)


def test_grown_topics_are_right_where_batches_end_unevenly(tmp_path: Path) -> None:
    """That batches of grown topics end at one moment is not what keeps this story right."""
    with partitions_of_grown_topics_are_read_unevenly():
        assert tell(GROWN, str(tmp_path)) is None
    forget_all()


@pytest.mark.parametrize("found", FOUND_MOVES)
def test_rows_keep_what_is_theirs_through_keys(tmp_path: Path, found: str) -> None:
    """Each of these stories was wrong once, and is so again with the fault that was mended."""
    story, fault = FOUND_MOVES[found]
    assert "must be" in _tell_with(fault, story, tmp_path)
