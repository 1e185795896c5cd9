"""Values that an update did not send: found by type, taken from the change before, else left as they came."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connector.sink.fold import NONE, Order
from connector.sink.parts import Folded, Part, fold, survivors
from connector.sink.patch import kept
from connector.sink.recall import as_spark_has, from_spark
from connector.sink.unsent import deletes, filled, gone_rows, parted, unknown
from serde.unavailable import PLACEHOLDER, unavailable

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
    found = unavailable(column)
    assert found is not None
    assert found.tolist() == [True, *[False] * (len(values) - 1)]
    assert unavailable(column.slice(1)) is None


@pytest.mark.parametrize("kind", [pa.int64(), pa.struct([("a", pa.string())]), pa.list_(pa.float64()), pa.date32()])
def test_other_types_have_none(kind: pa.DataType) -> None:
    """A type that is never TOASTed is not looked at."""
    assert unavailable(pa.nulls(3, kind)) is None


def part(*changes: tuple[int, str, int, str | None], lsn: bool = False) -> Part:
    """Changes (key, op, offset, value) of one partition, a delete without row; lsn: the offset is the log position."""
    keys, ops, offsets, values = zip(*changes, strict=True)
    count = len(changes)
    rows = pa.record_batch({"id": pa.array(keys, pa.int64()), "v": pa.array(values, pa.string())})
    none = np.full(count, NONE)
    order = Order(
        partition=np.zeros(count, np.int64),
        offset=np.array(offsets),
        dedup=np.array(offsets),
        lsn=np.array(offsets) if lsn else none,
        total_order=none,
        op=np.array([ord(op) for op in ops], np.uint8),
    )
    gone = order.op == ord("d")
    return Part(rows, order, gone, ~gone)


def ended(*parts: Part) -> dict[int, str | None]:
    """Key -> value after folding and filling."""
    return _rows(filled(fold(parts, ["id"]), ["id"]))


def _rows(folded: Folded) -> dict[int, str | None]:
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
    pieces = [p for each in (first, second) for p in survivors(filled(fold([each], ["id"]), ["id"]))]
    assert ended(*pieces) == ended(first, second) == {1: "a", 2: "b", 3: PLACEHOLDER}


def test_a_create_may_hold_that_text() -> None:
    """What was created with that very text keeps it, also over an update that sends it again."""
    assert ended(part((1, "c", 1, PLACEHOLDER), (1, "u", 2, PLACEHOLDER))) == {1: PLACEHOLDER}
    assert not unknown(filled(fold([part((1, "c", 1, PLACEHOLDER))], ["id"]), ["id"])).any()


def test_a_row_before_a_delete_gives_nothing_to_another_key() -> None:
    """Values never cross keys."""
    assert ended(part((1, "c", 1, "a"), (2, "u", 2, PLACEHOLDER))) == {1: "a", 2: PLACEHOLDER}


def test_what_only_the_table_knows_is_parted() -> None:
    """Winners with values that no change of the batch has are taken out, with the rest untouched."""
    folded = filled(fold([part((1, "c", 1, "a"), (2, "u", 2, PLACEHOLDER), (3, "u", 3, "c"))], ["id"]), ["id"])
    rest, taken = parted(folded, unknown(folded), ["id"])
    assert _rows(rest) == {1: "a", 3: "c"}
    assert [p.rows.to_pylist() for p in taken] == [[{"id": 2, "v": PLACEHOLDER}]]


def test_a_changed_key_leaves_what_the_lookup_needs() -> None:
    """A create with unsent values, and an update after it, are looked up by the create's place in the log."""
    changes = part((2, "c", 7, PLACEHOLDER), (2, "u", 8, PLACEHOLDER), (1, "u", 5, "a"), (1, "d", 7, None), lsn=True)
    folded = filled(fold([changes], ["id"]), ["id"])
    assert [p.rows.to_pylist() for p in gone_rows(folded)] == [[{"id": 1, "v": "a"}]]
    assert deletes(changes).rows.to_pylist() == [{"id": 1, "v": None}]
    _, (taken,) = parted(folded, unknown(folded), ["id"])
    assert (taken.rows.to_pylist(), taken.order.lsn.tolist(), bytes(taken.order.op)) == (
        [{"id": 2, "v": PLACEHOLDER}],
        [7],
        b"c",
    )


def test_an_update_is_looked_up_by_its_key() -> None:
    """Without a create in the batch an update with unsent values keeps its own place and operation."""
    folded = filled(fold([part((2, "u", 8, PLACEHOLDER), lsn=True)], ["id"]), ["id"])
    _, (taken,) = parted(folded, unknown(folded), ["id"])
    assert (taken.order.lsn.tolist(), bytes(taken.order.op)) == ([8], b"u")


def test_a_deleted_key_needs_no_look_up() -> None:
    """With hard deletes the unsent values of a key that is gone are not looked for; with soft ones they are."""
    folded = filled(fold([part((3, "u", 5, PLACEHOLDER), (3, "d", 6, None))], ["id"]), ["id"])
    assert unknown(folded).tolist() == [False]
    assert unknown(folded, keep_deletes=True).tolist() == [True]


def test_a_uuid_goes_to_spark_and_back() -> None:
    """Spark has a uuid as text; what comes back is the uuid."""
    kind = pa.uuid()
    column = pa.array([b"\x01" * 16, None], kind)
    assert from_spark(as_spark_has(column), kind).to_pylist() == column.to_pylist()


def test_the_tables_value_is_kept_where_it_has_one() -> None:
    """An unsent value becomes the table's; without a row in the table what came stays."""
    came = pa.array([PLACEHOLDER, PLACEHOLDER, "new", None])
    assert kept(came, pa.array(["old", None, "old", "old"])).to_pylist() == ["old", PLACEHOLDER, "new", None]
