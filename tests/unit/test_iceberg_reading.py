"""Files of a table that the driver reads in Python, from a store that is away, or with bounds that tell nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.refs import SnapshotRefType
from pyspark.sql import SparkSession

from connector.errors import FatalError, RetriableError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.keys.file_key_bounds import read_key_bounds
from connector.iceberg.keys.intervals import parse_interval
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.read.column_bounds import read_changed_bounds
from connector.iceberg.repair.manifest_repair import find_misleading_bounds
from connector.iceberg.state.offset_rows import SINK, OffsetRows
from connector.iceberg.types.schemas.arrow_types import build_table_schema

AWAY = OSError("When reading information for key 'm': AWS Error NETWORK_CONNECTION during GetObject operation")
SCHEMA = build_table_schema(
    pa.schema([("k", pa.int64()), ("s", pa.string()), ("u", pa.uuid())]), ("k",), frozenset(), nanoseconds=True
)
LAYOUT = TableLayout("d.t", "u", "/", SCHEMA.model_dump_json(), '{"spec-id":0,"fields":[]}', 0, {}, {})


class Away(FileIO):
    """A store that cannot be reached, or that lacks what is asked for."""

    def new_input(self, location: str) -> Any:
        raise AWAY if "gone" not in location else FileNotFoundError(location)

    def new_output(self, location: str) -> Any:
        raise AWAY

    def delete(self, location: Any) -> None:
        raise AWAY


class _Java:
    """What is asked of a loaded table; a refresh finds the next of these places of its metadata."""

    def __init__(self, *places: str) -> None:
        self._places = list(places)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        given = {"manifestListLocation": "s3://b/list.avro", "metadataFileLocation": self._places[0], "hasNext": False}
        return lambda *_: given.get(name, self)

    def snapshotId(self) -> int:  # noqa: N802 - Java's name
        return 7

    def refresh(self) -> None:
        del self._places[: len(self._places) - 1]


class _Broken(Table):
    """A table whose metadata is read, and whose manifests and files are not."""

    def metadata(self) -> Any:
        def raise_away(*_: Any) -> Any:
            raise AWAY

        snapshot = SimpleNamespace(manifests=raise_away)
        main = SimpleNamespace(snapshot_id=1, snapshot_ref_type=SnapshotRefType.BRANCH)
        return SimpleNamespace(
            refs=lambda: {"main": main},
            io=None,
            snapshot_by_id=lambda _: snapshot,
            current_snapshot=lambda: snapshot,
            schemas=lambda: {0: SCHEMA},
            scan=lambda: SimpleNamespace(plan_files=raise_away),
        )


def _table(kind: type[Table], *places: str) -> Table:
    own = {"py-io-impl": f"{__name__}.Away", "type": "jdbc"}
    return kind(cast("SparkSession", None), "d.t", _Java(*places), own)


READS: dict[str, Callable[[], object]] = {
    "metadata": lambda: _table(Table, "s3://b/v1.json").metadata(),
    "ancestors": lambda: list(_table(Table, "s3://b/v1.json").ancestors()),
    "known keys": lambda: read_key_bounds(_table(_Broken, "s3://b/v1.json"), LAYOUT),
    "stored rows": lambda: OffsetRows(cast("Catalog", SimpleNamespace(load=lambda _: _BROKEN)), "d.t", "a", SINK),
    "bounds": lambda: read_changed_bounds(_table(Table, "s3://b/v1.json"), 7, SCHEMA, ["k"]),
    "misleading bounds": lambda: find_misleading_bounds(_BROKEN),
}
_BROKEN = _table(_Broken, "s3://b/v1.json")


@pytest.mark.parametrize("what", READS)
def test_a_store_that_is_away_is_asked_again(what: str) -> None:
    """Whatever the driver reads in Python: it may be read later, and the message names the table."""
    with pytest.raises(RetriableError, match=r"d\.t.*NETWORK_CONNECTION"):
        READS[what]()


def test_a_file_that_went_with_a_newer_commit() -> None:
    """What is gone is looked for again only if the table is another by now."""
    with pytest.raises(RetriableError, match="newer"):
        _table(Table, "s3://b/gone-1.json", "s3://b/gone-2.json").metadata()
    with pytest.raises(FatalError, match=r"gone-1\.json"):
        _table(Table, "s3://b/gone-1.json").metadata()


def test_rows_are_forgotten_only_for_others() -> None:
    """Rows that could not be read again stay as they were: stored again without them they would be lost."""
    file = FileDescription("f", "data", b"")
    rows = OffsetRows.__new__(OffsetRows)
    rows._table, rows._name, rows._rows = _BROKEN, "a", {"a": "own"}
    rows._foreign, rows._files, rows._seen = [], [file], 6
    with pytest.raises(RetriableError):
        rows.reload()
    assert (rows.connector_row, rows._files, rows.is_stale()) == ("own", [file], True)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (b"a", "é".encode(), ("a", "é")),
        (b"a", "é".encode()[:1], None),
        (b"b", b"a", None),
        (None, b"a", None),
        (b"a", None, None),
    ],
)
def test_bounds_that_tell_nothing_are_unknown(low: bytes | None, high: bytes | None, expected: Any) -> None:
    """A bound that is not there, that is cut within a letter or beyond the other is none."""
    assert parse_interval(cast("Any", SCHEMA.find_type("s")), low, high) == expected


def test_bounds_of_another_type_are_unknown() -> None:
    """Bytes that are not as the column's type has them, in one file, are no reason to stop, and no span."""

    def entries(*_: Any, **__: Any) -> Iterator[Any]:
        for path, bound in (("good", (9).to_bytes(8, "little")), ("short", b"\0\0\0"), ("empty", b"")):
            ends = {1: bound}
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=path,
                lower_bounds=ends,
                upper_bounds=ends,
                null_value_counts={1: 0},
            )
            yield SimpleNamespace(data_file=file)

    manifest = SimpleNamespace(added_snapshot_id=7, fetch_manifest_entry=entries)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("connector.iceberg.read.column_bounds.read_manifest_list", lambda _: [manifest])
        patched.setattr(Away, "new_input", lambda *_: None)
        found = read_changed_bounds(_table(Table, "s3://b/v1.json"), 7, SCHEMA, ["k"])
    assert found == {"good": {"k": (9, 9)}, "short": {}, "empty": {}}


def test_keys_behind_bounds_of_another_type_may_be_anywhere() -> None:
    """Then the sink deletes before it inserts, as for any table of which nothing is known."""
    bound = {1: b"\0\0\0"}
    file = DataFile.from_args(content=DataFileContent.DATA, lower_bounds=bound, upper_bounds=bound)
    manifest = SimpleNamespace(fetch_manifest_entry=lambda *_, **__: [SimpleNamespace(data_file=file)])
    snapshot = SimpleNamespace(manifests=lambda _: [manifest])
    table = _table(_Broken, "s3://b/v1.json")
    with pytest.MonkeyPatch.context() as patched:
        metadata = SimpleNamespace(io=None, snapshot_by_id=lambda _: snapshot)
        patched.setattr(_Broken, "metadata", lambda _: metadata)
        assert read_key_bounds(table, LAYOUT) == KeyBounds()
