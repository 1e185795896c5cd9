"""Events with names that columns no longer have -> rows of the columns' names."""

from __future__ import annotations

import attrs
import pyarrow as pa
import pytest

from connector.settings import EventSettings
from connector.sink.convert.columns.column_renames import (
    find_renamed_fields,
    format_renames,
    parse_renames,
    rename_shape,
)
from connector.sink.convert.decoder import decode
from connector.sink.model.plan import BatchPlan, SchemaChange
from tests.unit import sink_plans

RENAMES = {"was": "now", "first": "now", "key": "id"}


def _plan(renames: dict[str, str], **columns: pa.DataType) -> BatchPlan:
    table = attrs.evolve(sink_plans.upsert(0, {"id": pa.int64(), **columns}, ("id",)), renames=renames)
    return sink_plans.plan(table, events=EventSettings("json", "json", (), "__"))


@pytest.mark.parametrize("apart", [True, False])
def test_fields_and_keys_find_their_columns(apart: bool) -> None:
    """Whichever name a field had when its event was made, its value is in the column; tombstones by the old key too."""
    values = [{"id": 1, "now": "a"}, {"id": 2, "was": "b"}, {"key": 3, "first": "c"}, None]
    keys = [{"id": 1}, {"id": 2}, {"key": 3}, {"key": 4}]
    plan = _plan(RENAMES, now=pa.string())
    together = ((0, 1), (1, 2), (2, 4)) if apart else ((0, 4),)
    outcomes = [decode(sink_plans.run(*values[a:b], keys=keys[a:b]), plan) for a, b in together]
    assert not any(outcome.faults or outcome.needs for outcome in outcomes)
    rows = [row for outcome in outcomes for row in sink_plans.rows(outcome)]
    assert [(row["id"], row["now"]) for row in rows] == [(1, "a"), (2, "b"), (3, "c"), (4, None)]


def test_two_earlier_names_are_one_column() -> None:
    """Events of one fetch may have several earlier names, and none the one that is now."""
    run = sink_plans.run({"id": 1, "was": "a"}, {"id": 2, "first": "b"}, keys=[{"id": 1}, {"id": 2}])
    outcome = decode(run, _plan(RENAMES, now=pa.string()))
    assert not outcome.faults and not outcome.needs
    assert sorted((row["id"], row["now"]) for row in sink_plans.rows(outcome)) == [(1, "a"), (2, "b")]


def test_a_name_that_is_used_anew_is_another_column() -> None:
    """An event that has the new name too means another column by the old one."""
    one = sink_plans.run({"id": 1, "now": "a", "was": "new"}, keys=[{"id": 1}])
    (need,) = decode(one, _plan(RENAMES, now=pa.string())).needs
    assert {field.name for field in need.row} == {"id", "now", "was"}


@pytest.mark.parametrize("envelope", [False, True])
def test_a_name_that_is_used_anew_beside_a_null_is_another_column(envelope: bool) -> None:
    """Also without schema, whatever stands beside such an event; one of before the renaming lacks the new name."""
    source = {"connector": "postgresql", "ts_ms": 1}
    rows = [{"id": 1, "now": None, "was": "new"}, {"id": 2, "was": "old"}, {"id": 3, "now": "a"}]
    events = [{"op": "c", "source": source, "before": None, "after": row} for row in rows] if envelope else rows
    plan = _plan({"was": "now"}, now=pa.string(), __deleted=pa.string())
    for some in (slice(0, 1), slice(0, 3)):
        run = sink_plans.run(*events[some], keys=[{"id": row["id"]} for row in rows[some]])
        (need,) = decode(run, plan).needs
        assert {field.name for field in need.row} >= {"id", "now", "was"}
    run = sink_plans.run(*events[1:], keys=[{"id": 2}, {"id": 3}])
    assert [(row["id"], row["now"]) for row in sink_plans.rows(decode(run, plan))] == [(2, "old"), (3, "a")]


def test_shapes_are_seen_by_the_names_of_columns() -> None:
    """Two earlier names are one column; what the source says of it stays with it."""
    shape = pa.struct([("key", pa.int64()), ("first", pa.string()), ("was", pa.string())])
    need = SchemaChange("t", shape, pa.struct([("key", pa.int64())]), {"key": False, "first": True})
    made = rename_shape(need, RENAMES)
    # By a schema both are there, so they are two columns; without one they are those of different events.
    assert made.row.names == ["id", "now", "was"]
    assert rename_shape(attrs.evolve(need, optional={}), RENAMES).row.names == ["id", "now"]
    assert rename_shape(attrs.evolve(need, optional={}), RENAMES, RENAMES).row.names == ["id", "now", "was"]
    assert made.key is not None and made.key.names == ["id"]
    assert made.optional == {"id": False, "now": True}
    assert find_renamed_fields(["was", "now"], RENAMES) == {}


def test_a_table_keeps_the_names_in_a_property() -> None:
    """What is written is read; a table without has none."""
    assert parse_renames({"icebridge.renamed-columns": format_renames(RENAMES)}) == RENAMES
    assert parse_renames({}) == {}


@pytest.mark.parametrize("single", [True, False])
def test_record_keys_under_an_earlier_name_keep_their_digits(single: bool) -> None:
    """A key under the name that its column had is read by the column's type; a single value has the column's name."""
    wide, columns = 123456789012345678901234, {"key": pa.decimal128(38, 0), "n": pa.int64()}
    table = attrs.evolve(sink_plans.upsert(0, columns, ("key",)), renames={"id": "key"})
    key = b"%d" % wide if single else b'{"id":%d}' % wide
    outcome = decode(sink_plans.run({"n": 1}, keys=[key]), sink_plans.plan(table))
    assert (sink_plans.rows(outcome), sink_plans.dead(outcome)) == ([{"key": wide, "n": 1}], {})
