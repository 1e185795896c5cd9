"""Values that an update did not send: found by type, taken from the change before, else left as they came."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.positional_reader import read_rows_at
from connector.iceberg.types.values.spark_types import from_spark, spark_type, to_spark
from connector.sink.destinations.iceberg.lookups.filled_values import TableSides, coalesce_unavailable
from connector.sink.destinations.iceberg.lookups.unavailable_values import _fill_rows, _JoinColumns, _list_columns
from connector.sink.fold.fold import fold
from connector.sink.fold.values.row_lives import find_last_rows, find_needed_rows, find_rows_of_lives
from connector.sink.fold.values.unavailable_values import fill_in_batch, mark_unavailable, split_winners
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder, FoldedChanges
from serde.events.images.unavailable_value import PLACEHOLDER, find_unavailable
from serde.events.positions.log_positions import NO_VALUE, unknown_positions
from tests.unit import sink_plans
from tests.unit.folds import select_rows_to_keep

CODES = [ord(letter) for letter in PLACEHOLDER]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), [PLACEHOLDER, "x" * len(PLACEHOLDER), "", None]),
        (pa.string(), [base64.b64encode(PLACEHOLDER.encode()).decode(), "a"]),
        (pa.string(), [f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}', "{}"]),
        (pa.binary(), [PLACEHOLDER.encode(), b"x"]),
        (pa.list_(pa.string()), [[PLACEHOLDER], [PLACEHOLDER, "a"], [], None, ["a"]]),
        (pa.list_(pa.int32()), [CODES, [*CODES[:-1], 0], [1], None]),
        (pa.list_(pa.int64()), [CODES, []]),
        (pa.map_(pa.string(), pa.string()), [[(PLACEHOLDER, PLACEHOLDER)], [("a", "b")], [], None]),
    ],
)
def test_found_by_type(kind: pa.DataType, values: list[Any]) -> None:
    """The first value is the placeholder as Debezium writes it for the type, no other is; slices are honoured."""
    column = pa.array([values[-1], *values], kind).slice(1)
    found = find_unavailable(column)
    assert found is not None
    assert found.tolist() == [True, *[False] * (len(values) - 1)]
    assert find_unavailable(column.slice(1)) is None


@pytest.mark.parametrize("kind", [pa.int64(), pa.struct([("a", pa.string())]), pa.list_(pa.float64()), pa.date32()])
def test_other_types_have_none(kind: pa.DataType) -> None:
    """A type that is never TOASTed is not looked at."""
    assert find_unavailable(pa.nulls(3, kind)) is None


def part(*changes: tuple[int, str, int, str | None]) -> ChangeBatch:
    """Changes (key, op, offset, value) of one partition, a delete without row."""
    keys, ops, offsets, values = zip(*changes, strict=True)
    count = len(changes)
    rows = pa.record_batch({"id": pa.array(keys, pa.int64()), "v": pa.array(values, pa.string())})
    none = np.full(count, NO_VALUE)
    order = ChangeOrder(
        partition=np.zeros(count, np.int64),
        offset=np.array(offsets),
        dedup=np.array(offsets),
        date=none,
        place=unknown_positions(count),
        op=np.array([ord(op) for op in ops], np.uint8),
    )
    gone = order.op == ord("d")
    return ChangeBatch(rows, order, gone, ~gone)


def ended(*parts: ChangeBatch) -> dict[int, str | None]:
    """Key -> value after folding and filling."""
    return _rows(fill_in_batch(fold(parts, ["id"]), ["id"]))


def _rows(folded: FoldedChanges) -> dict[int, str | None]:
    whole = pa.Table.from_batches([p.rows for p in folded.parts]).take(pa.array(folded.images[folded.images >= 0]))
    return dict(zip(whole["id"].to_pylist(), whole["v"].to_pylist(), strict=True))


def test_an_update_keeps_the_value_before() -> None:
    """The value of the last change of the same key that has one stands, over several updates."""
    one = part((1, "c", 1, "a"), (2, "c", 2, "b"), (1, "u", 3, PLACEHOLDER), (2, "u", 4, "B"), (1, "u", 5, PLACEHOLDER))
    assert ended(one) == {1: "a", 2: "B"}


def test_a_null_is_a_value() -> None:
    """A null that was sent is kept, not skipped."""
    assert ended(part((1, "c", 1, "a"), (1, "u", 2, None), (1, "u", 3, PLACEHOLDER))) == {1: None}


def test_filling_does_not_depend_on_the_cut() -> None:
    """Folded and filled part by part, then together, the rows are those of one fold."""
    first = part((1, "c", 1, "a"), (1, "u", 2, PLACEHOLDER), (3, "u", 3, PLACEHOLDER))
    second = part((1, "u", 4, PLACEHOLDER), (2, "c", 5, "b"), (3, "u", 6, PLACEHOLDER))
    pieces = [
        p for each in (first, second) for p in select_rows_to_keep(fill_in_batch(fold([each], ["id"]), ["id"]), ["id"])
    ]
    assert ended(*pieces) == ended(first, second) == {1: "a", 2: "b", 3: PLACEHOLDER}


def test_a_create_may_hold_that_text() -> None:
    """What was created with that very text keeps it, also over an update that sends it again."""
    assert ended(part((1, "c", 1, PLACEHOLDER), (1, "u", 2, PLACEHOLDER))) == {1: PLACEHOLDER}
    created = fill_in_batch(fold([part((1, "c", 1, PLACEHOLDER))], ["id"]), ["id"])
    assert not mark_unavailable(created).any()
    # As long as nobody has looked whether a change of key made it, it may be another thing.
    assert mark_unavailable(created, suspicious=True).all()


def test_a_row_takes_nothing_from_its_keys_life_before() -> None:
    """A create begins a row anew: neither it nor updates after it take a value from before the key was deleted."""
    before = ((1, "c", 1, "a"), (1, "d", 2, None))
    assert ended(part(*before, (1, "c", 3, PLACEHOLDER), (1, "u", 4, PLACEHOLDER))) == {1: PLACEHOLDER}
    assert ended(part(*before, (1, "C", 3, PLACEHOLDER), (1, "u", 4, PLACEHOLDER))) == {1: PLACEHOLDER}


def test_a_row_before_a_delete_gives_nothing_to_another_key() -> None:
    """Values never cross keys."""
    assert ended(part((1, "c", 1, "a"), (2, "u", 2, PLACEHOLDER))) == {1: "a", 2: PLACEHOLDER}


def test_what_only_the_table_knows_is_parted() -> None:
    """Winners with values that no change of the batch has are taken out, with the rest untouched."""
    folded = fill_in_batch(fold([part((1, "c", 1, "a"), (2, "u", 2, PLACEHOLDER), (3, "u", 3, "c"))], ["id"]), ["id"])
    rest, taken = split_winners(folded, mark_unavailable(folded), ["id"])
    assert _rows(rest) == {1: "a", 3: "c"}
    assert [p.rows.to_pylist() for p in taken] == [[{"id": 2, "v": PLACEHOLDER}]]


def test_a_changed_key_leaves_what_the_lookup_needs() -> None:
    """A moved create with unsent values, and an update after it, are looked up by the create's place in Kafka."""
    changes = part((2, "C", 7, PLACEHOLDER), (2, "u", 8, PLACEHOLDER), (1, "u", 5, "a"), (1, "d", 7, None))
    folded = fill_in_batch(fold([changes], ["id"]), ["id"])
    assert changes.take(find_last_rows(folded, ["id"])).rows.to_pylist() == [
        {"id": 2, "v": PLACEHOLDER},
        {"id": 1, "v": "a"},
    ]
    _, (taken,) = split_winners(folded, mark_unavailable(folded), ["id"])
    assert (taken.rows.to_pylist(), taken.order.offset.tolist(), bytes(taken.order.op)) == (
        [{"id": 2, "v": PLACEHOLDER}],
        [7],
        b"C",
    )


def test_an_update_after_a_moved_create_knows_it_in_a_later_fold() -> None:
    """Folded in a task before the shuffle, the create that a row goes back to is handed on with it."""
    folded = fill_in_batch(fold([part((2, "C", 7, PLACEHOLDER), (2, "u", 8, PLACEHOLDER))], ["id"]), ["id"])
    later = fill_in_batch(fold(select_rows_to_keep(folded, ["id"], find_needed_rows(folded, ["id"])), ["id"]), ["id"])
    _, (taken,) = split_winners(later, mark_unavailable(later), ["id"])
    assert (taken.order.offset.tolist(), bytes(taken.order.op)) == ([7], b"C")


REUSED = (
    *((1, "u", 1, "a"), (1, "d", 2, "invented"), (1, "c", 3, "b"), (1, "d", 4, None), (1, "c", 5, "c")),
    *((2, "d", 6, "invented"), (2, "c", 7, "d"), (3, "u", 8, "e"), (3, "d", 9, None), (4, "c", 10, "f")),
)


@pytest.mark.parametrize("cut", range(len(REUSED)))
def test_rows_of_keys_that_are_given_anew_are_known_by_their_deletes(cut: int) -> None:
    """However tasks share the changes, a delete before a new row of its key tells the row before, nothing invented."""
    tasks = [part(*some) for some in (REUSED[:cut], REUSED[cut:]) if some]
    folds = [fill_in_batch(fold([one], ["id"]), ["id"]) for one in tasks]
    handed = [one for each in folds for one in select_rows_to_keep(each, ["id"], find_needed_rows(each, ["id"]))]
    lives = ChangeBatch.concat(find_rows_of_lives(fold(handed, ["id"]), ["id"]))
    values = (lives.order.dedup, lives.rows["id"].to_pylist(), lives.rows["v"].to_pylist(), lives.deleted)
    told = {(int(at), key, value, bool(ended)) for at, key, value, ended in zip(*values, strict=True)}
    assert {one for one in told if one[3]} == {
        (2, 1, "a", True),
        (4, 1, "b", True),
        (6, 2, None, True),
        (9, 3, "e", True),
    }
    assert told - {one for one in told if one[3]} == {
        *((5, 1, "c", False), (7, 2, "d", False), (10, 4, "f", False)),
    }


SENT = ((1, "c", "x"), (1, "u", "a"), (1, "u", PLACEHOLDER), (1, "d", None), (1, "c", "b"), (1, "u", PLACEHOLDER))
"""What the source did, in the order of its log; a connector that restarts sends a part of it again."""


@pytest.mark.parametrize("known", [0, 2])
@pytest.mark.parametrize("again", range(len(SENT)))
def test_an_update_that_is_sent_again_takes_the_value_of_its_own_row(again: int, known: int) -> None:
    """In front of it in Kafka may be the next row of its key: neither the life before the delete nor what a lookup asks
    for is of that one, also where the batch does not have the value.
    """
    serials = [*range(known, len(SENT)), *range(again, len(SENT))]
    changes = part(*((*SENT[serial][:2], offset, SENT[serial][2]) for offset, serial in enumerate(serials, 1)))
    place = unknown_positions(len(serials))
    place[:, 0], place[:, 1], place[:, 2:] = 7, np.array(serials) + 10, 0
    order = attrs.evolve(changes.order, dedup=np.array(serials) + 10, date=np.array(serials) + 10, place=place)
    folded = fill_in_batch(fold([attrs.evolve(changes, order=order)], ["id"]), ["id"])
    assert _rows(folded) == {1: "b"}
    lives = ChangeBatch.concat(find_rows_of_lives(folded, ["id"]))
    was = "a" if known < 2 or again < 2 else PLACEHOLDER
    assert dict(zip(lives.deleted.tolist(), lives.rows["v"].to_pylist(), strict=True)) == {False: "b", True: was}


def test_a_soft_deletes_own_row_is_not_the_last_known_one() -> None:
    """What a delete event says of its row is invented but for the key: the row before it is what a new key takes."""
    changes = part((1, "u", 5, "a"), (1, "d", 7, ""))
    kept_image = attrs.evolve(changes, image=np.array([True, True]))
    folded = fold([kept_image], ["id"])
    assert find_last_rows(folded, ["id"]).tolist() == [0]
    assert sum(len(p) for p in select_rows_to_keep(folded, ["id"], find_last_rows(folded, ["id"]))) == 2
    assert sum(len(p) for p in select_rows_to_keep(folded, ["id"])) == 1


def test_what_a_truncate_ended_tells_values() -> None:
    """Its rows are no deletes, which invent values: an update takes from them what it did not send."""
    changes = part((1, "c", 5, "a"), (1, "u", 7, PLACEHOLDER), (2, "d", 5, "invented"), (2, "u", 7, PLACEHOLDER))
    folded = fill_in_batch(
        fold([attrs.evolve(changes, deleted=np.ones(4, np.bool_), image=np.ones(4, np.bool_))], ["id"]), ["id"]
    )
    assert folded.parts[0].rows["v"].to_pylist() == ["a", "a", "invented", PLACEHOLDER]


def test_an_update_is_looked_up_by_its_key() -> None:
    """Without a create in the batch an update with unsent values keeps its own place and operation."""
    folded = fill_in_batch(fold([part((2, "u", 8, PLACEHOLDER))], ["id"]), ["id"])
    _, (taken,) = split_winners(folded, mark_unavailable(folded), ["id"])
    assert (taken.order.offset.tolist(), bytes(taken.order.op)) == ([8], b"u")


def test_a_deleted_key_needs_no_look_up() -> None:
    """With hard deletes the unsent values of a key that is gone are not looked for; with soft ones they are."""
    folded = fill_in_batch(fold([part((3, "u", 5, PLACEHOLDER), (3, "d", 6, None))], ["id"]), ["id"])
    assert mark_unavailable(folded).tolist() == [False]
    assert mark_unavailable(folded, keep_deletes=True).tolist() == [True]


NANOS = pa.timestamp("ns")


@pytest.mark.parametrize(
    ("kind", "values", "there"),
    [
        (pa.uuid(), [b"\x01" * 16, None], pa.string()),
        (pa.time64("us"), [0, None, 86_399_999_999], pa.int64()),
        (NANOS, [1, -1, None], pa.int64()),
        (pa.list_(pa.uuid()), [[b"\x01" * 16, None], None, []], pa.list_(pa.string())),
        (pa.list_(pa.time64("us")), [[1, None], [], None], pa.list_(pa.int64())),
        (
            pa.struct([("t", pa.time64("us")), ("n", pa.int32())]),
            [{"t": 1, "n": None}, None, {"t": None, "n": 2}],
            pa.struct([("t", pa.int64()), ("n", pa.int32())]),
        ),
        (pa.map_(pa.string(), NANOS), [[("a", 1), ("b", None)], None, []], pa.map_(pa.string(), pa.int64())),
        (pa.binary(2), [b"ab", None], pa.binary()),
        (pa.decimal128(5, 2), [None], pa.decimal128(5, 2)),
    ],
    ids=str,
)
def test_what_spark_lacks_goes_there_and_back(kind: pa.DataType, values: list[Any], there: pa.DataType) -> None:
    """A type that Spark has not is carried as numbers or text, nulls, slices and nesting included, and comes back."""
    column = pa.concat_arrays([pa.nulls(1, kind), _array(values, kind)]).slice(1)
    sent = to_spark(column)
    assert (sent.type, spark_type(kind)) == (there, there)
    back = from_spark(sent, kind)
    assert back.type == kind and back.equals(column)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    plain = {pa.list_(pa.uuid()): pa.list_(pa.binary(16))}.get(kind)
    if plain is None:
        return pa.array(values, kind)
    made = pa.array(values, plain)
    inner = pa.ExtensionArray.from_storage(pa.uuid(), made.values)
    return pa.ListArray.from_arrays(made.offsets, inner, kind, mask=made.is_null())


@pytest.mark.parametrize("nested", [False, True])
def test_rows_are_picked_by_file_and_position(tmp_path: Path, nested: bool) -> None:
    """Values come from the right row of the right file, whatever its row groups, its column names and its columns."""
    kind = pa.list_(pa.time64("us")) if nested else pa.time64("us")
    values = [[n] for n in range(10)] if nested else list(range(10))
    ids = [
        pa.field("t", kind, metadata={"PARQUET:field_id": "7"}),
        pa.field("u", pa.int32(), metadata={"PARQUET:field_id": "8"}),
    ]
    one, other, old = (str(tmp_path / f"{name}.parquet") for name in ("one", "other", "old"))
    pq.write_table(
        pa.table([pa.array(values, kind), pa.array(range(10), pa.int32())], pa.schema(ids)), one, row_group_size=3
    )
    renamed = pa.schema([ids[0].with_name("was")])
    pq.write_table(pa.table([pa.array(values[::-1], kind)], renamed), other)
    pq.write_table(pa.table([pa.array([1] * 3, pa.int32())], pa.schema([ids[1]])), old)
    files = pa.array([other, one, one, old, one])
    (found,) = read_rows_at(layout(), files, pa.array([0, 9, 2, 1, 0]), [ids[0]])
    assert (
        found.cast(spark_type(kind)).to_pylist()
        == pa.array([values[9], values[9], values[2], None, values[0]], spark_type(kind)).to_pylist()
    )


def layout(*fields: dict[str, Any]) -> TableLayout:
    """A layout whose files are local."""
    document = orjson.dumps({"type": "struct", "schema-id": 0, "fields": fields}).decode()
    return TableLayout("t", "u", "/", document, "{}", 0, {}, {})


DEFAULTS: dict[str, tuple[Any, Any]] = {
    "boolean": (False, False),
    "int": (-7, -7),
    "long": (2**62 + 1, 2**62 + 1),
    "float": (1.1, np.float32(1.1).item()),
    "double": (0.1, 0.1),
    "decimal(38, 2)": ("123456789012345678901234567890123456.78", Decimal("123456789012345678901234567890123456.78")),
    "date": ("1969-12-31", date(1969, 12, 31)),
    "time": ("22:31:08.123456", time(22, 31, 8, 123456)),
    "timestamp": ("2017-11-16T22:31:08.123456", datetime(2017, 11, 16, 22, 31, 8, 123456)),
    "timestamptz": ("2017-11-16T22:31:08.123456+00:00", datetime(2017, 11, 16, 22, 31, 8, 123456, UTC)),
    "timestamp_ns": ("1970-01-01T00:00:01.123456789", 1_123_456_789),
    "timestamptz_ns": ("1970-01-01T00:00:01.123456789+00:00", 1_123_456_789),
    "string": ("", ""),
    "uuid": ("f79c3e09-677c-4bbd-a479-3f349cb785e7", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")),
    "fixed[3]": ("0001ff", b"\x00\x01\xff"),
    "binary": ("00ff", b"\x00\xff"),
}


def _given(column: pa.Array) -> list[Any]:
    nanoseconds = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return (column.cast(pa.int64()) if nanoseconds else column).to_pylist()


@pytest.mark.parametrize("kind", DEFAULTS)
def test_columns_that_a_file_lacks_have_their_default(tmp_path: Path, kind: str) -> None:
    """Of every type, also within structs and lists, fields being found by id; a row that is not there has none."""
    default, value = DEFAULTS[kind]
    added = {"type": kind, "required": False, "initial-default": default}
    inner = [
        {"id": 4, "name": "b", "type": "int", "required": False},
        {"id": 5, "name": "a", "type": "int", "required": False},
        {"id": 6, "name": "d", **added},
    ]
    table = layout(
        {"id": 1, "name": "d", **added},
        {"id": 2, "name": "n", "type": kind, "required": False},
        {"id": 3, "name": "s", "type": {"type": "struct", "fields": inner}, "required": False},
        {
            "id": 7,
            "name": "l",
            "type": {
                "type": "list",
                "element-id": 8,
                "element-required": False,
                "element": {"type": "struct", "fields": [{"id": 9, "name": "d", **added}]},
            },
            "required": False,
        },
    )
    # The names of two fields were exchanged since.
    a, b = (pa.field(name, pa.int32(), metadata={"PARQUET:field_id": id_}) for name, id_ in (("a", "4"), ("b", "5")))
    of_item = pa.field("e", pa.int32(), metadata={"PARQUET:field_id": "10"})
    of_list = pa.list_(pa.field("element", pa.struct([of_item]), metadata={"PARQUET:field_id": "8"}))
    old = pa.schema(
        [
            pa.field("s", pa.struct([a, b]), metadata={"PARQUET:field_id": "3"}),
            pa.field("l", of_list, metadata={"PARQUET:field_id": "7"}),
        ]
    )
    rows = [{"s": {"a": 40, "b": 50}, "l": [{"e": 1}, None]}, {"s": None, "l": None}, {"s": {"a": 41}, "l": []}]
    path = str(tmp_path / "old.parquet")
    pq.write_table(pa.Table.from_pylist(rows, old), path)
    places = pa.array([2, 1, None, 0], pa.int64())
    found = read_rows_at(table, pa.array([path, path, None, path]), places, list(table.columns))
    assert [column.type for column in found] == [field.type for field in table.columns]
    assert _given(found[0]) == [value, value, None, value]
    assert found[1].null_count == 4
    assert found[2].is_valid().to_pylist() == [True, False, False, True]
    assert [pc.struct_field(found[2], name).to_pylist() for name in "ba"] == [
        [41, None, None, 40],
        [None, None, None, 50],
    ]
    assert _given(pc.struct_field(found[2], "d")) == [value, None, None, value]
    assert [None if items is None else len(items) for items in found[3].to_pylist()] == [0, None, None, 2]
    assert _given(pc.struct_field(found[3].flatten(), "d")) == [value, None]


def test_the_tables_value_is_kept_where_it_has_one() -> None:
    """An unsent value becomes the table's; without a row in the table what came stays."""
    came = pa.array([PLACEHOLDER, PLACEHOLDER, "new", None])
    assert coalesce_unavailable(came, pa.array(["old", None, "old", "old"])).to_pylist() == [
        "old",
        PLACEHOLDER,
        "new",
        None,
    ]


def test_deletes_that_leave_values_out_take_those_of_their_row() -> None:
    """A delete of Oracle's has the placeholder: a row that is marked as deleted keeps the value that it had."""
    changes = attrs.evolve(part((1, "c", 1, "old"), (1, "d", 2, PLACEHOLDER)), image=np.ones(2, np.bool_))
    filled = fill_in_batch(fold([changes], ["id"]), ["id"])
    assert filled.parts[0].rows["v"].to_pylist() == ["old", "old"]
    alone = fold([changes.slice(1, 1)], ["id"])
    assert [mark_unavailable(alone, keep_deletes=kept).tolist() for kept in (True, False)] == [[True], [False]]


def test_a_null_of_the_tables_row_is_its_value() -> None:
    """A row that is there and has null had no value to send; one under the key of another row tells nothing."""
    layout = sink_plans.layout({"id": pa.int64(), "v": pa.string()}, ("id",))
    sides = _JoinColumns(("id",), (("id",),), ("v",), (), layout.columns)
    names = _list_columns(sides, (), ("live",))
    came: dict[str, list[Any]] = dict(zip(names[:2], ([1, 2, 3, 4], [PLACEHOLDER] * 4), strict=True))
    live = dict(zip(names[3:], ([None, "old", None, None], ["f", "f", None, "f"], [0, 1, None, 2]), strict=True))
    batch = pa.RecordBatch.from_pydict({**came, names[2]: [False, False, False, True], **live})
    fill = partial(_fill_rows, layout=layout, sides=sides, batch_sides=(), table_sides=("live",), doubted=())
    assert fill(batch).column("v").to_pylist() == [None, "old", PLACEHOLDER, PLACEHOLDER]


def test_what_the_very_row_lacks_is_not_taken_from_rows_that_may_be_others() -> None:
    """Where it has the value, or is not there, or the other row is known to be from before, that one gives its own."""
    sides, unsure = TableSides(), np.array([True, True, True, False])
    sides.take("own", pa.array([PLACEHOLDER, None, "own", PLACEHOLDER]), None)
    for side in ("held", "live"):
        assert sides.take(side, pa.array(["a", "b", "c", "d"]), unsure).to_pylist() == [None, "b", "c", "d"]


def test_a_row_that_went_gives_nothing_that_a_row_which_is_there_lacks() -> None:
    """That row had the key later: the one that went is another, whether or not anything is sure of it."""
    sides = TableSides()
    sides.take("own", pa.array([PLACEHOLDER, None, None]), None)
    sides.take("live", pa.array([None, PLACEHOLDER, None]), np.zeros(3, np.bool_))
    assert sides.take("struck", pa.array(["a", "b", "c"]), None).to_pylist() == [None, None, "c"]


def test_without_a_time_of_rows_what_is_there_gives_its_values() -> None:
    """Nothing is withheld of a row that is there where nobody looked for the very one."""
    assert TableSides().take("live", pa.array(["a", None]), None).to_pylist() == ["a", None]
