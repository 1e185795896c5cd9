"""What a fold has of a key's changes, with some of them missing -> values are taken from the very row only."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa
import pytest

from connector.sink.fold.fold import fold
from connector.sink.fold.late_events import split_late_candidates
from connector.sink.fold.values.key_histories import find_creates, sort_by_origin
from connector.sink.fold.values.row_lives import find_rows_of_lives
from connector.sink.fold.values.unavailable_values import fill_in_batch, find_open_starts, mark_unavailable
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from connector.sink.model.task_output import OutputKind, TaskOutput
from serde.events.images.unavailable_value import PLACEHOLDER
from serde.events.kinds.operations import NO_OP, TOMBSTONE
from serde.events.positions.log_positions import NO_VALUE, unknown_positions
from tests.simulation.lookups import judge_late
from tests.unit.folds import select_rows_to_keep
from tests.unit.sink_plans import plan, upsert
from tests.unit.test_sink_unavailable_values import part

DAY = 20_001


def placed(*changes: tuple[str, int, str | None]) -> ChangeBatch:
    """Changes (op, place in the source's log, value) of a key, in Kafka's order, of one date; a tombstone has none."""
    made = part(*((1, op, offset, value) for offset, (op, _, value) in enumerate(changes)))
    place = unknown_positions(len(changes))
    place[:, 0], place[:, 1], place[:, 2:] = 7, [at for _, at, _ in changes], 0
    bare = place[:, 1] == NO_VALUE
    place[bare] = unknown_positions(1)
    dates, op = np.where(bare, NO_VALUE, DAY), np.where(bare, np.uint8(TOMBSTONE), made.order.op)
    order = attrs.evolve(made.order, dedup=dates, date=dates, place=place, op=op)
    return attrs.evolve(made, order=order, image=made.image & ~bare)


def values(parts: tuple[ChangeBatch, ...]) -> list[str | None]:
    return [value for one in parts for value in one.rows["v"].to_pylist()]


def test_behind_a_gap_nothing_is_known() -> None:
    """A batch ends within what is sent again, in front of where it began itself: the update at 40 is of a row that is
    in the table, and not of the one that was made at 10; nor did the delete at 50 end that one.
    """
    whole = placed(("u", 40, PLACEHOLDER), ("d", 50, None), ("c", 10, "other"), ("u", 20, PLACEHOLDER))
    folded = fill_in_batch(fold([whole], ["id"]), ["id"])
    assert values(folded.parts) == [PLACEHOLDER, None, "other", "other"]
    places = ChangeOrder.concat([one.order for one in folded.parts])
    assert find_creates(folded.parts, places, ["id"]).tolist() == [-1, -1, 2, 2]
    lives = ChangeBatch.concat(find_rows_of_lives(folded, ["id"]))
    told = zip(lives.rows["v"].to_pylist(), lives.order.place[:, 1].tolist(), lives.deleted.tolist(), strict=True)
    assert ("other", 50, True) not in set(told)


def test_a_tombstone_without_its_delete_is_of_no_other_log() -> None:
    """A batch begins behind a delete, with its tombstone, and has the row after it in front of what is sent again from
    before it: the update at 10 is of the row that the delete at 20 ended, and not of the one that was made at 40.
    """
    changes = ("d", NO_VALUE, None), ("c", 40, "other"), ("u", 10, PLACEHOLDER), ("d", 20, None), ("d", NO_VALUE, None)
    whole = placed(*changes)
    folded = fill_in_batch(fold([whole], ["id"]), ["id"])
    assert values(folded.parts) == [None, "other", PLACEHOLDER, None, None]
    assert sort_by_origin([whole], ["id"]).sequence.tolist() == [2, 3, 4, 0, 1]
    places = ChangeOrder.concat([one.order for one in folded.parts])
    assert find_creates(folded.parts, places, ["id"]).tolist() == [-1, 1, -1, -1, -1]
    lives = ChangeBatch.concat(find_rows_of_lives(folded, ["id"]))
    told = set(zip(lives.rows["v"].to_pylist(), lives.order.place[:, 1].tolist(), lives.deleted.tolist(), strict=True))
    assert (PLACEHOLDER, 20, True) in told and ("other", 20, True) not in told


def test_a_tombstone_without_its_delete_ends_what_came_before_the_next_change() -> None:
    """What is sent again from before it is of the row that it ended: an event without operation behind it takes
    nothing from there.
    """
    changes = ("d", NO_VALUE, None), ("?", 40, PLACEHOLDER), ("c", 10, "other"), ("u", 20, PLACEHOLDER)
    whole = placed(*changes)
    untold = np.where(whole.order.op == ord("?"), np.uint8(NO_OP), whole.order.op)
    whole = attrs.evolve(whole, order=attrs.evolve(whole.order, op=untold))
    folded = fill_in_batch(fold([whole], ["id"]), ["id"])
    assert values(folded.parts) == [None, PLACEHOLDER, "other", "other"]


def test_changes_of_several_logs_stay_as_kafka_has_them() -> None:
    """Places of two logs tell nothing of each other, whether or not a tombstone without its delete is in front."""
    for changes in ([("u", 40, "v"), ("u", 10, "v")], [("d", NO_VALUE, None), ("u", 40, "v"), ("u", 10, "v")]):
        whole = placed(*changes, ("u", 30, "v"))
        whole.order.place[-1, 0] = 8
        assert sort_by_origin([whole], ["id"]).sequence.tolist() == list(range(len(whole)))


def test_a_gap_is_one_whatever_another_partition_has_of_the_key() -> None:
    """Partitions were added behind what was sent again: the later change there fills no gap between earlier ones."""
    first = placed(("u", 40, PLACEHOLDER), ("d", 50, None), ("c", 10, "other"), ("u", 20, PLACEHOLDER))
    second = placed(("u", 60, PLACEHOLDER))
    second = attrs.evolve(second, order=attrs.evolve(second.order, partition=np.array([1])))
    folded = fill_in_batch(fold([first, second], ["id"]), ["id"])
    assert values(folded.parts) == [PLACEHOLDER, None, "other", "other", PLACEHOLDER]
    histories = sort_by_origin([first, second], ["id"])
    assert histories.sequence.tolist() == [2, 3, 0, 1, 4]
    assert histories.starts.tolist() == [0, 0, 2, 2, 2]


def test_another_source_in_another_partition_moves_nothing() -> None:
    """Places in several logs do not compare: what comes again in one partition goes where it was in that one, whatever
    another source has of the key elsewhere.
    """
    first = placed(("c", 5, "other"), ("d", 9, None), ("c", 12, "own"), ("d", 9, None), ("u", 15, PLACEHOLDER))
    second = placed(("c", 40, "elsewhere"))
    place = second.order.place + np.array([1, 0, 0, 0])
    second = attrs.evolve(second, order=attrs.evolve(second.order, partition=np.array([1]), place=place))
    folded = fill_in_batch(fold([first, second], ["id"]), ["id"])
    assert values(folded.parts) == ["other", None, "own", None, "own", "elsewhere"]


def test_what_comes_again_in_another_partition_goes_where_it_was() -> None:
    """Partitions were added, and a connector sends again what the key's old partition has: the row of the last update,
    in the new one, is that of the create at 30, and not the one that the repeated delete ended.
    """
    old = placed(("c", 30, "own"))
    new = placed(("u", 40, PLACEHOLDER), ("c", 10, "other"), ("d", 20, None), ("d", NO_VALUE, None))
    new = attrs.evolve(new, order=attrs.evolve(new.order, partition=np.ones(4, np.int64)))
    histories = sort_by_origin([old, new], ["id"])
    assert histories.sequence.tolist() == [2, 3, 4, 0, 1]
    assert histories.starts.tolist() == [0, 0, 0, 3, 3]
    for parts in ([old, new], [new, old]):
        folded = fill_in_batch(fold(parts, ["id"]), ["id"])
        assert sorted(map(str, values(folded.parts))) == ["None", "None", "other", "own", "own"]


@pytest.mark.parametrize(("read_before", "dated"), [(False, True), (True, True), (True, False)])
def test_behind_a_repetition_another_partition_does_not_go_on(read_before: bool, dated: bool) -> None:
    """A batch ends within what is sent again in the key's new partition, and has the last update of the old one: what
    lies between was read before, so that the table is asked. A place without a date proves no repetition: transactions
    side by side write later events at smaller places.
    """
    new, old = placed(("c", 10, "other")), placed(("u", 40, PLACEHOLDER))
    date = new.order.date if dated else np.array([NO_VALUE])
    order = attrs.evolve(new.order, partition=np.array([1]), date=date)
    new = attrs.evolve(new, order=order, suspect=np.array([read_before]))
    folded = fill_in_batch(fold([new, old], ["id"]), ["id"])
    assert values(folded.parts) == ["other", PLACEHOLDER if read_before and dated else "other"]


@pytest.mark.parametrize(
    ("held", "told"),
    [
        ({"__source_lsn": 20}, "own"),
        ({"__source_lsn": 30}, PLACEHOLDER),
        ({"__source_lsn": 35}, PLACEHOLDER),
        ({"__source_lsn": None}, PLACEHOLDER),
        (None, "own"),
    ],
)
def test_another_partition_goes_on_behind_what_is_newer_than_the_tables_row(
    held: dict[str, int | None] | None, told: str
) -> None:
    """The last update of the key's old partition may be a repetition, and is not where the table's row is certainly
    older. Of one that tells no age the table is asked for its value.
    """
    table = upsert(0, {"id": pa.int64(), "v": pa.string(), "__source_lsn": pa.int64()}, ("id",))
    old, new = (_tell_lsn(placed(("u", lsn, value))) for lsn, value in ((30, "own"), (40, PLACEHOLDER)))
    new = attrs.evolve(new, order=attrs.evolve(new.order, partition=np.array([1])))
    folded = fill_in_batch(fold([attrs.evolve(old, suspect=np.array([True])), new], ["id"]), ["id"])
    assert values(folded.parts) == ["own", PLACEHOLDER]
    assert split_late_candidates(folded, ("id",), has_rows=False)[1] is None
    rest, aside = split_late_candidates(folded, ("id",))
    assert rest is None and aside is not None and aside.candidate.tolist() == [True, False]
    rows = [] if held is None else [{"id": 1, "v": "of the table", **held}]
    asked = [TaskOutput(OutputKind.LATE_CANDIDATES, pack(aside), 0, 5)]
    kept, counted = judge_late(asked, table, plan(table), rows, None)
    judged = fold([unpack(pa.py_buffer(kept.payload), table.layout.rows)], ["id"])
    assert values(fill_in_batch(judged, ["id"]).parts) == ["own", told]
    assert counted.kind == OutputKind.DRIVER


def _tell_lsn(part: ChangeBatch) -> ChangeBatch:
    rows = part.rows.append_column("__source_lsn", pa.array(part.order.place[:, 1]))
    return attrs.evolve(part, rows=rows)


def test_behind_a_delete_an_event_without_operation_is_of_another_row() -> None:
    """What the first fold takes no value from is not there for the second one either: it hands the delete on."""
    first = placed(("c", 10, "other"))
    second = placed(("d", 20, None), ("c", 30, PLACEHOLDER))
    untold = attrs.evolve(second.order, op=np.zeros(2, np.uint8), offset=second.order.offset + 1)
    second = attrs.evolve(second, order=untold)
    folded = fill_in_batch(fold([first, second], ["id"]), ["id"])
    assert values(folded.parts) == ["other", None, PLACEHOLDER]
    alone = fill_in_batch(fold([second], ["id"]), ["id"])
    handed = select_rows_to_keep(alone, ["id"], find_open_starts(alone.parts, ["id"]))
    later = fill_in_batch(fold([first, *handed], ["id"]), ["id"])
    assert later.parts[-1].rows["v"].to_pylist()[-1] == PLACEHOLDER
    assert mark_unavailable(later, suspicious=True).any()


@pytest.mark.parametrize(
    ("ranks", "starts"),
    [
        ([40, 50, 10, 20], [0, 0, 2, 2]),
        ([40, 50, 10, 20, 40], [0] * 5),
        ([40, 50, 10, 20, 10, 20, 30, 40, 50], [0] * 9),
        ([40, 10, 20, 15], [0, 0, 0, 3]),
        ([10, 20, 30], [0, 0, 0]),
        ([30, 20, 10], [0, 1, 2]),
    ],
)
def test_gaps_are_where_no_pass_has_both_sides(ranks: list[int], starts: list[int]) -> None:
    """What Kafka has in order is without gap, and so are two such passes that overlap."""
    histories = sort_by_origin([placed(*(("u", rank, "v") for rank in ranks))], ["id"])
    assert sorted(ranks) == [ranks[at] for at in histories.sequence]
    assert histories.starts.tolist() == starts
    assert histories.keys.tolist() == [0] * len(ranks)


def test_a_later_fold_knows_the_create_that_a_change_of_key_made() -> None:
    """It left its value out, and so did the update behind it: the row that had the key before, in the same transaction,
    is another one.
    """
    changes = ("c", 10, "other"), ("d", 20, None), ("d", NO_VALUE, None), ("c", 30, PLACEHOLDER), ("u", 40, PLACEHOLDER)
    whole = placed(*changes)
    first = fill_in_batch(fold([whole], ["id"]), ["id"])
    handed = select_rows_to_keep(first, ["id"], find_open_starts(first.parts, ["id"]))
    again = fill_in_batch(fold(handed, ["id"]), ["id"])
    assert mark_unavailable(again, suspicious=True).tolist() == [True]
    # The date of the first change proves what is older, so that it is handed on, too.
    assert "other" in values(again.parts)
