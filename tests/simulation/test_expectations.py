"""What is expected of a table: where a key's old partition held a read, where what came before a read comes again, and
where a request came late.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from serde.events.images.unavailable_value import PLACEHOLDER
from tests.simulation.expectations import FOREIGN_NAME, Expectation, Wrong
from tests.simulation.source import Truth

pytestmark = pytest.mark.unit

TOPIC = "db.public.t0"
ROW = {"id": 1, "n": 10, "name": "a"}
CREATED, READ, DELETED = Truth(1, "change", 1, ROW), Truth(1, "read", 1, ROW), Truth(2, "change", 1, None)
TRUNCATE = Truth(2, "truncate")
OLD, NEW = (TOPIC, 0), (TOPIC, 1)


def _expect(*batches: dict[tuple[str, int], Sequence[Truth]]) -> Expectation:
    """An expectation of one table, after commits of these batches."""
    expected = Expectation(TOPIC, upsert=True, exact=True, precise=True, alone=False)
    seen: dict[tuple[str, int], dict[int, Truth]] = {OLD: {}, NEW: {}}
    for batch in batches:
        for at, truths in batch.items():
            seen[at] |= dict(enumerate(truths, len(seen[at])))
        expected.advance({at: len(known) for at, known in seen.items()}, seen, seen, "a commit")
    return expected


@pytest.mark.parametrize(
    "batches", [[{OLD: [READ], NEW: [DELETED]}], [{NEW: [DELETED]}, {OLD: [READ]}]], ids=["one batch", "a later batch"]
)
def test_a_read_that_the_old_partition_still_held_may_stand(batches: list[dict[tuple[str, int], list[Truth]]]) -> None:
    """Nothing tells whether it came before the delete in the new partition: the row may be there, or not."""
    expected = _expect(*batches)
    expected.check([ROW], complete=True)
    expected.check([], complete=True)
    with pytest.raises(Wrong, match="must be not there or n=10"):
        expected.check([{**ROW, "n": 11}], complete=True)


@pytest.mark.parametrize(
    "batches",
    [
        [{OLD: [READ]}, {NEW: [DELETED]}],
        [{OLD: [READ, DELETED]}],
        [{OLD: [CREATED, READ], NEW: [DELETED]}],
        [{OLD: [CREATED], NEW: [DELETED]}],
    ],
    ids=["the delete in a later batch", "one partition", "a change before the read", "no read"],
)
def test_any_other_row_that_comes_back_is_wrong(batches: list[dict[tuple[str, int], list[Truth]]]) -> None:
    """Where an order can be known, the row of a deleted key is wrong."""
    expected = _expect(*batches)
    expected.check([], complete=True)
    with pytest.raises(Wrong, match="must be not there"):
        expected.check([ROW], complete=True)


def test_a_change_after_it_ends_the_doubt() -> None:
    """A change of a later batch is the truth, whatever was there before."""
    expected = _expect({OLD: [READ], NEW: [DELETED]}, {NEW: [attrs.evolve(CREATED, serial=3, row={**ROW, "n": 12})]})
    expected.check([{**ROW, "n": 12}], complete=True)
    with pytest.raises(Wrong, match="must be n=12"):
        expected.check([ROW], complete=True)


def test_a_state_to_go_back_to_has_doubts_of_its_own() -> None:
    """What is taken in later changes nothing of a copy."""
    expected = _expect({NEW: [DELETED]})
    before = expected.copy()
    seen = {OLD: {0: READ}, NEW: {0: DELETED}}
    expected.advance({OLD: 1, NEW: 1}, seen, seen, "a commit")
    expected.check([ROW], complete=True)
    with pytest.raises(Wrong, match="must be not there"):
        before.check([ROW], complete=True)


def test_a_late_request_may_put_a_document_back_behind_a_truncate_of_its_second() -> None:
    """Dates of whole seconds tell its document from none that came behind: what it says may stand, and nothing else."""
    whole_seconds, precise = (attrs.evolve(_expect({OLD: [CREATED, TRUNCATE]}), precise=told) for told in (False, True))
    for expected in (whole_seconds, precise):
        expected.alone = True
        expected.note_late_rows({}, {"1": (1, ROW)})
        expected.check([], complete=True)
    whole_seconds.check([ROW], complete=True)
    with pytest.raises(Wrong, match="must be not there or n=10"):
        whole_seconds.check([{**ROW, "n": 11}], complete=True)
    with pytest.raises(Wrong, match="must be not there"):
        precise.check([ROW], complete=True)


def test_a_document_that_moved_without_its_create_may_be_later_than_what_is_behind() -> None:
    """Retention took the create, and dates of whole seconds go to and fro: the document, or the change, may stand."""
    gone = attrs.evolve(DELETED, went_to=2)
    create = Truth(3, "change", 2, {**ROW, "id": 2}, came_from=1)
    changed = Truth(4, "change", 2, {**ROW, "id": 2, "n": 12})
    moved, own = {**ROW, "id": 2}, {**ROW, "id": 2, "n": 12}

    def expect(*truths: Truth, partial: bool = True, precise: bool = False) -> Expectation:
        told = {OLD: [CREATED, gone], NEW: truths}
        return attrs.evolve(_expect(told), documents=True, partial=partial, precise=precise)

    for row in (moved, own):
        expect(changed).check([row], complete=True)
    for other in (expect(create, changed), expect(changed, partial=False), expect(changed, precise=True)):
        other.check([own], complete=True)
        with pytest.raises(Wrong, match="must be n=12"):
            other.check([moved], complete=True)


def test_a_change_of_key_that_comes_again_behind_a_read_may_lose_its_large_value() -> None:
    """The row that was read is not asked for it; a read without anything behind it has to stand as it is."""
    moved, read = Truth(3, "change", 1, ROW, came_from=2), Truth(4, "read", 1, ROW)
    lost = [{**ROW, "name": PLACEHOLDER}]
    expected = _expect({OLD: [moved]}, {OLD: [read]})
    expected.alone = True
    with pytest.raises(Wrong, match="the name of key 1"):
        expected.check(lost, complete=True)
    expected = _expect({OLD: [moved]}, {OLD: [read, moved]})
    expected.alone = True
    expected.check(lost, complete=True)


def test_a_row_of_others_may_be_taken_for_one_that_went_before_it_was_read() -> None:
    """Behind retention an update finds what the table has under its key; where nothing went this is wrong."""
    updated = Truth(3, "change", 1, ROW)
    taken = [{**ROW, "name": FOREIGN_NAME}]
    expected = _expect({OLD: [updated]})
    with pytest.raises(Wrong, match="the name of key 1"):
        expected.check(taken, complete=True)
    expected.partial = True
    expected.check(taken, complete=True)


def test_what_came_before_a_truncate_may_lack_a_value_that_the_truncate_took() -> None:
    """Another process applies it to the table that is empty by now; what comes behind the truncate has its values."""
    lost = [{**ROW, "name": PLACEHOLDER}]
    expected = _expect({OLD: [CREATED]})
    expected.empty({OLD: {0: CREATED, 1: TRUNCATE}})
    expected.check(lost, complete=False)
    expected = _expect({OLD: [TRUNCATE, Truth(3, "change", 1, ROW)]})
    expected.empty({OLD: {0: TRUNCATE}})
    with pytest.raises(Wrong, match="the name of key 1"):
        expected.check(lost, complete=False)


TOLD = {**ROW, "__op": "u", "__deleted": "false"}


@pytest.mark.parametrize("upsert", [True, False], ids=["rows", "events"])
@pytest.mark.parametrize("other", [{"__op": "c"}, {"__op": None}, {"__deleted": None}])
def test_a_row_tells_of_its_event(*, upsert: bool, other: dict[str, str | None]) -> None:
    """Its columns of metadata are those of the event, whether a row is of a key or of an event."""
    expected = attrs.evolve(_expect({OLD: [attrs.evolve(CREATED, told=TOLD)]}), upsert=upsert, metadata=("__op",))
    expected.check([TOLD], complete=True)
    with pytest.raises(Wrong, match=r"than its event|appended rows"):
        expected.check([{**TOLD, **other}], complete=True)


@pytest.mark.parametrize(
    ("behind", "brings"),
    [([CREATED], False), ([DELETED], False), ([Truth(3, "read", 1, ROW)], True), ([Truth(3, "change", 2, ROW)], True)],
    ids=["comes again", "is deleted", "is read", "is new"],
)
def test_what_comes_behind_the_offsets_brings_rows(behind: list[Truth], *, brings: bool) -> None:
    """What a table has, and what is gone at once, needs no row of it."""
    assert _expect({OLD: [CREATED]}).brings_rows({OLD: dict(enumerate(behind, 1))}) is brings
