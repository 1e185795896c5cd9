"""Source rules without Spark: a snapshot's schema, what identifies a row, how failures are told."""

from __future__ import annotations

import json

import pytest
from pyiceberg.types import LongType, TimeType, UnknownType

from connector.errors import ConfigError, FatalError, RetriableError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.source.changes.file_pruning import files_without_partner
from connector.source.changes.read_errors import _translate
from connector.source.changes.row_key import KeyKind, RowIdentity, RowKey, choose_row_key

pytestmark = pytest.mark.unit


def _schema(*fields: tuple[str, object], identifiers: tuple[int, ...] = ()) -> SnapshotSchema:
    listed = [{"id": i, "name": n, "required": i in identifiers, "type": t} for i, (n, t) in enumerate(fields, start=1)]
    document = {"type": "struct", "schema-id": 3, "identifier-field-ids": list(identifiers), "fields": listed}
    return SnapshotSchema(json.dumps(document))


def test_types_that_spark_lacks_are_carried_as_numbers() -> None:
    """Times and nanosecond timestamps are read as longs, at any depth, under names by place and the same ids."""
    nested = {"type": "list", "element-id": 9, "element": "timestamp_ns", "element-required": False}
    carried = _schema(("a b", "timestamptz_ns"), ("l", nested), ("u", "uuid")).carried(lambda place: f"c{place}")
    assert [(f["id"], f["name"], f["type"]) for f in carried["fields"]] == [
        (1, "c0", "long"),
        (2, "c1", {**nested, "element": "long"}),
        (3, "c2", "uuid"),
    ]
    assert _schema(("t", "time")).carried(str)["fields"][0]["type"] == "long"


def test_times_beside_nested_columns_are_refused() -> None:
    """Iceberg's row reader has no times: the error names the column."""
    struct = {"type": "struct", "fields": [{"id": 7, "name": "t", "required": False, "type": "time"}]}
    with pytest.raises(ValueError, match=r"column s\.t is of type time"):
        _schema(("s", struct)).carried(str)


def test_schema_for_interpreting() -> None:
    """The PyIceberg schema keeps the real types; variants, which it lacks, are unknown and named apart."""
    schema = _schema(("t", "time"), ("v", "variant"))
    assert [type(field.field_type) for field in schema.iceberg.fields] == [TimeType, UnknownType]
    assert schema.variants == {2}
    assert not schema.flat
    assert isinstance(_schema(("id", "long")).iceberg.find_field("id").field_type, LongType)


def test_key_of_a_table() -> None:
    """Configured columns win over identifier columns, these over the row id, which only v3 tables have."""
    keyed = _schema(("a", "long"), ("b", "string"), identifiers=(2,))
    bare = _schema(("a", "long"))
    assert choose_row_key(keyed, keyed, ("a",), "t", has_row_ids=False) == RowKey(
        KeyKind.CONFIGURED, ("a",), RowIdentity.IDENTIFIERS, ("b",)
    )
    assert choose_row_key(keyed, keyed, (), "t", has_row_ids=True) == RowKey(
        KeyKind.IDENTIFIERS, ("b",), RowIdentity.ROW_ID
    )
    assert choose_row_key(bare, bare, (), "t", has_row_ids=True) == RowKey(KeyKind.ROW_ID)
    assert choose_row_key(bare, bare, (), "t", has_row_ids=False) == RowKey()


def test_configured_key_that_is_not_there() -> None:
    """A configured column that the table lacks is an error with both names."""
    schema = _schema(("a", "long"), ("b", "string"))
    with pytest.raises(ConfigError, match=r"message\.key\.columns names x, which table db\.t does not have.*a, b"):
        choose_row_key(schema, schema, ("x",), "db.t", has_row_ids=False)


def test_nested_identifiers_have_dotted_names() -> None:
    """An identifier field inside a struct is named with its path."""
    struct = {"type": "struct", "fields": [{"id": 7, "name": "n", "required": True, "type": "long"}]}
    assert _schema(("s", struct), identifiers=(7,)).identifiers == ("s.n",)


def test_failures_while_reading() -> None:
    """A lost file and a broken one are fatal and named; a store that is away may be tried again."""
    gone = "Job aborted\nCaused by: java.io.FileNotFoundException: File file:/w/db/t/data/1-a.parquet does not exist\n"
    broken = (
        "x\nCaused by: java.lang.RuntimeException: file:/w/2.parquet is not a Parquet file. Expected magic number\n"
    )
    away = "x\nCaused by: java.net.ConnectException: Connection refused\n"
    assert isinstance(_translate(gone, "table t, snapshot 5"), FatalError)
    assert "file:/w/db/t/data/1-a.parquet is gone" in str(_translate(gone, "table t, snapshot 5"))
    assert "table t, snapshot 5" in str(_translate(broken, "table t, snapshot 5"))
    assert "2.parquet cannot be read" in str(_translate(broken, "table t, snapshot 5"))
    assert isinstance(_translate(away, "table t, snapshot 5"), RetriableError)


def test_files_outside_of_the_other_side_are_alone() -> None:
    """A file whose span in one column touches no other file's needs no partner; unknown spans touch all."""
    others = [{"id": (1, 5), "p": ("a", "a")}, {"id": (4, 9), "p": ("a", "a")}, {"id": (20, 30), "p": ("c", "c")}]
    files = [{"id": (10, 19)}, {"id": (9, 19)}, {"id": (31, 31)}, {"id": (0, 50), "p": ("b", "b")}, {}, {"id": (0, 0)}]
    assert files_without_partner(files, others, ["id", "p"]) == [True, False, True, True, False, True]
    assert files_without_partner(files, [*others, {}], ["id", "p"]) == [False] * 6
    assert files_without_partner(files, [], ["id"]) == [True, True, True, True, False, True]


def test_bounds_of_no_columns_prune_nothing() -> None:
    """Without a column to go by every file may have partners."""
    assert files_without_partner([{"id": (1, 2)}], [{"id": (3, 4)}], []) == [False]
