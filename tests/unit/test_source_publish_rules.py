"""What a source decides without Spark: descriptions of schemas, topics, times, stored positions."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from connector.errors import ConfigError, FatalError, GapError, RetriableError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.settings.source.capture import CaptureSettings
from connector.source.changes.row_key import KeyKind, RowIdentity, RowKey, choose_row_key
from connector.source.destinations.schema_subjects import subject_name
from connector.source.envelope import row_schema
from connector.source.poll_loop import TableSchedule, after_failure
from connector.source.snapshots.discovery import plain_names
from connector.source.snapshots.next_step import SnapshotOffset, SnapshotProgress
from connector.source.snapshots.snapshot_info import event_ts_ns
from connector.source.snapshots.table_offset import TableOffset
from connector.source.snapshots.table_warnings import find_warnings
from serde.emit.row_schema import Primitive, RowField, RowList, RowMap, RowStruct
from serde.emit.type_mapping import HandlingModes


def field(name: str, kind: Any, *, required: bool = False) -> dict[str, Any]:
    return {"id": 1, "name": name, "type": kind, "required": required}


SCHEMA = {
    "type": "struct",
    "fields": [
        field("id", "long", required=True),
        field("amount", "decimal(9, 2)"),
        field("raw", "fixed[16]"),
        field("list", {"type": "list", "element-id": 2, "element": "timestamptz_ns", "element-required": True}),
        field(
            "map",
            {"type": "map", "key-id": 3, "key": "int", "value-id": 4, "value": "variant", "value-required": False},
        ),
        field("inner", {"type": "struct", "fields": [field("code", "string", required=True)]}),
        field("inner.code", "int"),
        field("shape", "geometry(srid:4326)"),
    ],
}


def test_every_type_is_described() -> None:
    """Parameters, nesting and optionality of Iceberg's JSON all arrive in the description."""
    assert row_schema.describe_row(SCHEMA) == RowStruct(
        (
            RowField("id", Primitive("long"), False),
            RowField("amount", Primitive("decimal", 9, 2)),
            RowField("raw", Primitive("fixed")),
            RowField("list", RowList(Primitive("timestamptz_ns"), False)),
            RowField("map", RowMap(Primitive("int"), Primitive("variant"))),
            RowField("inner", RowStruct((RowField("code", Primitive("string"), False),))),
            RowField("inner.code", Primitive("int")),
            RowField("shape", Primitive("geometry")),
        )
    )


def test_a_key_is_found_inside_structs() -> None:
    """A dotted key column is a field of a struct, unless a column has that very name."""
    row = row_schema.describe_row(SCHEMA)
    assert row_schema.describe_key(row, ("id", "inner.code")).paths == (("id",), ("inner.code",))
    without = RowStruct(row.members[:-2])
    made = row_schema.describe_key(without, ("inner.code",))
    assert made.paths == (("inner", "code"),)
    assert made.record.members == (RowField("inner.code", Primitive("string"), False),)


def test_a_column_without_form_is_named() -> None:
    """A column that no Debezium type fits stops its table, with its name and the way out."""
    with pytest.raises(FatalError, match=r"table a\.b: .*shape \(geometry\).*column\.exclude\.list"):
        row_schema.check_columns("a.b", row_schema.describe_row(SCHEMA), HandlingModes())


def test_columns_of_one_name_are_refused() -> None:
    """Columns that an adjustment mode gives one name stop their table, with their names and the way out."""
    row = RowStruct((RowField("a b", Primitive("int")), RowField("a_b", Primitive("int"))))
    row_schema.check_columns("t", row, HandlingModes())
    row_schema.check_columns("t", row, HandlingModes(fields="avro_unicode"))
    with pytest.raises(FatalError, match=r"columns a b, a_b have one name with field\.name\.adjustment\.mode=avro;"):
        row_schema.check_columns("t", row, HandlingModes(fields="avro"))


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("TopicNameStrategy", "p.db.t-value"),
        ("RecordNameStrategy", "p.db.t.Envelope"),
        ("TopicRecordNameStrategy", "p.db.t-p.db.t.Envelope"),
    ],
)
def test_subjects_are_confluents(strategy: Any, expected: str) -> None:
    """Subjects are named as Confluent's strategies of these names do."""
    assert subject_name(strategy, "value", "p.db.t", "p.db.t.Envelope") == expected


@pytest.mark.parametrize(
    ("ms", "before", "expected"),
    [(5, None, 5_000_000), (5, 4_999_000, 5_000_000), (5, 5_000_000, 5_001_000), (5, 7_000_000, 7_001_000)],
)
def test_times_of_snapshots_only_grow(ms: int, before: int | None, expected: int) -> None:
    """Two snapshots of one millisecond, or one that is dated back, still have rising event times."""
    assert event_ts_ns(ms, before) == expected


@pytest.mark.parametrize("reading", [None, SnapshotProgress(5, 3, 1000)])
def test_a_standing_is_read_back(reading: SnapshotProgress | None) -> None:
    """What is stored of a table's position is what is read."""
    standing = TableOffset(SnapshotOffset("u", 1, reading), 3)
    assert TableOffset.parse(standing.json()) == standing


def schema(*fields: dict[str, Any], identifiers: tuple[int, ...] = ()) -> SnapshotSchema:
    numbered = [{**f, "id": i} for i, f in enumerate(fields, 1)]
    document = {"type": "struct", "schema-id": 0, "identifier-field-ids": identifiers, "fields": numbered}
    return SnapshotSchema(json.dumps(document))


def test_identifier_columns_of_now_key_older_snapshots_too() -> None:
    """Identifier columns set after the rows were written count for them, by field id; what is gone falls back."""
    old = schema(field("ident", "long"), field("v", "int"))
    renamed = schema(field("id", "long", required=True), field("v", "int"), identifiers=(1,))
    assert choose_row_key(old, renamed, (), "t", has_row_ids=False) == RowKey(KeyKind.IDENTIFIERS, ("ident",))
    assert choose_row_key(old, renamed, ("v",), "t", has_row_ids=False) == RowKey(
        KeyKind.CONFIGURED, ("v",), RowIdentity.IDENTIFIERS, ("ident",)
    )
    later = schema(field("id", "long"), field("v", "int"), field("n", "int", required=True), identifiers=(3,))
    assert choose_row_key(old, later, (), "t", has_row_ids=False) == RowKey()
    assert choose_row_key(old, old, (), "t", has_row_ids=True) == RowKey(KeyKind.ROW_ID)


def _key(at: SnapshotSchema, now: SnapshotSchema, *configured: str) -> tuple[str, ...]:
    return choose_row_key(at, now, configured, "db.t", has_row_ids=False).columns


def test_a_configured_column_is_followed_through_its_renames() -> None:
    """By its name now, whatever it was called at the snapshot, or by its name there, as long as that is read."""
    old, new = (schema(field(name, "long"), field("v", "int")) for name in ("code", "number"))
    assert [_key(at, new, "number") for at in (old, new)] == [("code",), ("number",)]
    assert [_key(old, now, "code") for now in (old, new)] == [("code",), ("code",)]
    with pytest.raises(ConfigError, match=r"names code, which table db\.t does not have .* there are number, v; now"):
        _key(new, new, "code")


def test_a_configured_name_that_went_over_to_another_column() -> None:
    """The column that has the name now is meant, where it is there; before it was, the one that had the name."""
    old = schema(field("a", "long"), field("b", "long"))
    swapped = schema(field("b", "long"), field("a", "long"))
    assert [_key(at, swapped, "a") for at in (old, swapped)] == [("b",), ("a",)]
    again = schema(field("b", "long"), field("c", "long"), field("a", "long"))
    assert [_key(at, again, "a") for at in (old, again)] == [("a",), ("a",)]


def test_configured_names_of_one_column() -> None:
    """Its names before and after a rename are no two columns of a key."""
    old, new = schema(field("a", "long"), field("b", "long")), schema(field("a2", "long"), field("b", "long"))
    assert _key(old, new, "b", "a2") == ("b", "a")
    for names in (("a2", "a"), ("a", "a2")):
        with pytest.raises(ConfigError, match=r"names a, which"):
            _key(old, new, *names)


def test_a_configured_column_that_a_snapshot_has_not_yet() -> None:
    """A column that was added later is no key of the rows before: the error names both schemas' columns."""
    old, new = schema(field("v", "int")), schema(field("v", "int"), field("code", "long"))
    with pytest.raises(ConfigError, match=r"names code, .* there are v; now v, code"):
        _key(old, new, "code")


@pytest.mark.parametrize(
    ("kind", "columns", "identifiers", "version", "same"),
    [
        (KeyKind.IDENTIFIERS, ("a",), ("a",), 2, RowIdentity.NOTHING),
        (KeyKind.IDENTIFIERS, ("a",), ("a",), 3, RowIdentity.ROW_ID),
        (KeyKind.CONFIGURED, ("b",), ("a",), 2, RowIdentity.IDENTIFIERS),
        (KeyKind.CONFIGURED, ("b",), ("a",), 3, RowIdentity.IDENTIFIERS),
        (KeyKind.CONFIGURED, ("b", "a"), ("a", "b"), 2, RowIdentity.NOTHING),
        (KeyKind.CONFIGURED, ("b", "a"), ("a", "b"), 3, RowIdentity.ROW_ID),
        (KeyKind.CONFIGURED, ("b",), (), 2, RowIdentity.NOTHING),
        (KeyKind.CONFIGURED, ("b",), (), 3, RowIdentity.ROW_ID),
        (KeyKind.ROW_ID, (), (), 3, RowIdentity.NOTHING),
        (KeyKind.NONE, (), (), 2, RowIdentity.NOTHING),
    ],
)
def test_a_row_is_known_under_another_key(
    kind: KeyKind, columns: tuple[str, ...], identifiers: tuple[str, ...], version: int, same: RowIdentity
) -> None:
    """By the identifier columns where others are the key, else by the row id of a v3 table, else not at all."""
    fields = (field("a", "long", required=True), field("b", "long", required=True))
    both = schema(*fields, identifiers=tuple("ab".index(name) + 1 for name in identifiers))
    configured = columns if kind == KeyKind.CONFIGURED else ()
    assert choose_row_key(both, both, configured, "t", has_row_ids=version == 3) == RowKey(
        kind, columns, same, identifiers if same == RowIdentity.IDENTIFIERS else ()
    )


def capture(**changed: object) -> CaptureSettings:
    given = CaptureSettings((), (), (), (), (), "initial", 1000, 1000, "main", False, "offsets")
    return attrs.evolve(given, **changed)


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        (("db.t", r"a\.b\.c"), ("db.t", "a.b.c")),
        ((r"db\..*",), None),
        (("db.t", "db.(x|y)"), None),
        ((), None),
    ],
)
def test_plain_names_need_no_listing(tables: tuple[str, ...], expected: tuple[str, ...] | None) -> None:
    """Only a list of plain names spares the listing of the catalog; a dot in one is a dot, escaped or not."""
    assert plain_names(capture(tables=tables)) == expected


def test_a_failure_that_may_pass_is_tried_later_and_later_until_time_is_over() -> None:
    """Waits double up to the longest; when the time is over, or nothing can help, the table has no more turns."""
    turn, now, waits = TableSchedule(), 100.0, []
    for _ in range(8):
        turn = after_failure(turn, RetriableError("away"), now, timeout_s=60, longest_s=3)
        waits.append(round(turn.at - now, 3))
        now = turn.at
    assert waits == [0.2, 0.4, 0.8, 1.6, 3, 3, 3, 3]
    assert turn.waiting
    assert not turn.is_due(now - 0.1)
    over = after_failure(turn, RetriableError("away"), 161.0, timeout_s=60, longest_s=3)
    assert isinstance(over.failed, RetriableError)
    assert not over.is_due(1e9)
    endless = after_failure(turn, RetriableError("away"), 1e6, timeout_s=None, longest_s=3)
    assert endless.failed is None
    assert after_failure(TableSchedule(), GapError("gone"), 0.0, timeout_s=None, longest_s=3).failed


def test_costly_tables_and_missing_keys_are_warned_of() -> None:
    """A table without key, and properties that make deletes dear to read, each have a warning with the way out."""
    assert find_warnings(RowKey(KeyKind.IDENTIFIERS, ("id",)), 2, {}) == []
    assert "message.key.columns" in find_warnings(RowKey(), 2, {})[0]
    assert "_row_id" in find_warnings(RowKey(KeyKind.ROW_ID), 3, {})[0]
    wide = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"}
    assert "write.delete.granularity" in find_warnings(RowKey(KeyKind.IDENTIFIERS, ("id",)), 2, wide)[0]
    assert find_warnings(RowKey(KeyKind.IDENTIFIERS, ("id",)), 3, wide) == []
    bare = {"write.metadata.metrics.default": "none"}
    assert "bounds of id" in find_warnings(RowKey(KeyKind.CONFIGURED, ("id",)), 2, bare)[0]
    assert (
        find_warnings(RowKey(KeyKind.CONFIGURED, ("id",)), 2, {**bare, "write.metadata.metrics.column.id": "full"})
        == []
    )
