"""Dead letters put through again: which of them later records have overtaken (pure rules of the replay)."""

from __future__ import annotations

import pyarrow as pa

from connector.sink.decode import decode
from connector.sink.parts import Part
from connector.sink.replay import chosen, overtaken
from tests.unit.sink_plans import plan, run, upsert

COLUMNS = {"id": pa.int64(), "v": pa.int64()}


def _part(*ids: int | None, first: int = 100) -> Part:
    values = [{"id": i, "v": 1} if i is not None else None for i in ids]
    records = run(*values, keys=[{"id": i or 9} for i in ids])
    records.offset[:] += first - 100
    outcome = decode(records, plan(upsert(0, COLUMNS, ("id",))))
    (part, *more) = outcome.parts
    assert not more
    return part


def test_a_later_record_of_the_same_key_overtakes() -> None:
    """Only a later record about the same key counts: not an earlier one, not one of another key."""
    letters = _part(1, 2, 3, first=100)  # offsets 100, 101, 102
    assert overtaken(letters, [_part(2, 4, first=200)], ["id"]).tolist() == [False, True, False]
    assert overtaken(letters, [_part(3, first=50)], ["id"]).tolist() == [False, False, False]
    assert overtaken(letters, [_part(1, first=150), _part(3, first=300)], ["id"]).tolist() == [True, False, True]
    assert overtaken(letters, [], ["id"]).tolist() == [False, False, False]


def test_a_later_delete_overtakes() -> None:
    """A key that was deleted later stays deleted."""
    assert overtaken(_part(9), [_part(None, first=200)], ["id"]).tolist() == [True]


def test_what_is_kept_keeps_its_letters() -> None:
    """Rows and their letters are parted together; without a mask all are kept (tables that are appended to)."""
    part = _part(1, 2)
    ((kept, ids),), gone = chosen([(part, ["0-1", "0-2"])], [overtaken(part, [_part(1, first=300)], ["id"]) == 0])
    assert (kept.rows.column("id").to_pylist(), ids, gone) == ([2], ["0-2"], {"0-1"})
    assert chosen([(part, ["0-1", "0-2"])], None) == ([(part, ["0-1", "0-2"])], set())
