"""The product's catalog, tables and files -> the simulated catalog, which answers what they ask of Java or a store.

All rules are the product's own; nothing of them is done again.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import attrs
import orjson
import pyarrow as pa
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType

from connector.errors import FatalError, RetriableError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import SnapshotEntry, Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.guard.delete_guard import DeleteGuard
from connector.iceberg.java import map_java_errors
from connector.iceberg.state import offset_rows
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write.rolling_file import FileKind
from connector.runtime.retry import call_with_retries
from connector.settings import ErrorSettings
from tests.simulation.catalog_server import CatalogServer, LiveFile, Metadata, Rows
from tests.simulation.interruptions import Interruptions, catalog_away, commit_unanswered
from tests.simulation.java_table import JavaTable
from tests.simulation.replacements import replaced
from tests.simulation.store import io_properties, store_away

_CONTENTS = {
    "data": DataFileContent.DATA,
    "equality-deletes": DataFileContent.EQUALITY_DELETES,
    "position-deletes": DataFileContent.POSITION_DELETES,
}
_SPEC = '{"spec-id":0,"fields":[]}'
_NO_ARROW = SimpleNamespace(Table=SimpleNamespace(from_pylist=lambda rows, _: rows))


class SimulatedTable(Table):
    """A table of the simulated catalog."""

    java: JavaTable

    @property
    def schema_json(self) -> str:
        return self.java.now.schema_json

    def layout(self) -> TableLayout:
        now = self.java.now
        return TableLayout(
            now.name, now.uuid, now.name, now.schema_json, _SPEC, 0, now.properties, self.io_properties()
        )

    @property
    def shape(self) -> tuple[int, ...]:
        now = self.java.now
        return hash(now.schema_json), hash(tuple(sorted(now.properties.items())))

    def has_spec(self, spec_id: int) -> bool:
        return True

    def io_properties(self) -> dict[str, str]:
        return io_properties(self.java.server.store)

    def metadata(self) -> Any:
        return MetadataView(self.java.server, self.java.now, self.java.calls)

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except KeyError as gone:
            location = self._location()
            self.refresh()
            told = f"reading {what} of table {self.name}: {gone} is gone"
            raise (FatalError if self._location() == location else RetriableError)(told) from gone

    def list_snapshots(self) -> dict[int, SnapshotEntry]:
        return {one.id: SnapshotEntry(one.parent, one.summary) for one in self.java.now.snapshots.values()}

    def accept_callbacks(self) -> AbstractContextManager[None]:
        return nullcontext()

    def note_caller(self) -> None:
        pass

    def expression(self, where: str) -> Any:
        return orjson.loads(where)

    def content_files(self, descriptions: Iterable[FileDescription]) -> Iterator[Any]:
        return iter(descriptions)

    @property
    def own_thread(self) -> None:
        """No manifests are read here."""


@attrs.frozen
class MetadataView:
    """PyIceberg's table of some metadata; it is its own metadata, store, scan and manifest."""

    server: CatalogServer
    now: Metadata
    calls: Interruptions

    @property
    def metadata(self) -> MetadataView:
        return self

    @property
    def io(self) -> MetadataView:
        return self

    @property
    def refs(self) -> Mapping[str, Any]:
        """Nothing but the only branch, which nobody looks up here."""
        return {}

    @property
    def snapshots(self) -> list[Any]:
        return [one.pyiceberg for one in self.now.snapshots.values()]

    def current_snapshot(self) -> Any:
        return self.now.newest

    def schema(self) -> Schema:
        """That of offsets: of no other table is it looked at here."""
        return offset_rows.OFFSETS_SCHEMA

    def snapshot_by_id(self, number: int) -> SnapshotView | None:
        return SnapshotView(self.now.snapshots[number].files) if number in self.now.snapshots else None

    def scan(self) -> SnapshotView:
        newest = self.now.newest
        return SnapshotView(newest.files if newest is not None else ())

    def new_input(self, path: str) -> MetadataView:
        return attrs.evolve(self, now=path)

    def open(self) -> AbstractContextManager[io.BytesIO]:
        return nullcontext(io.BytesIO(self.server.files[self.now]))  # type: ignore[index]


@attrs.frozen
class SnapshotView:
    """A snapshot's only manifest."""

    files: Sequence[LiveFile]

    def manifests(self, _: Any) -> list[SnapshotView]:
        return [self]

    def fetch_manifest_entry(self, _: Any, *, discard_deleted: bool) -> Iterator[FileView]:
        return map(FileView, self.files)

    def plan_files(self) -> Iterator[FileView]:
        return (FileView(file) for file in self.files if file.content == "data")


@attrs.frozen
class FileView:
    """An entry of a manifest, the task of a scan, and the data file."""

    live: LiveFile

    @property
    def data_file(self) -> FileView:
        return self

    @property
    def file(self) -> FileView:
        return self

    @property
    def content(self) -> DataFileContent:
        return _CONTENTS[self.live.content]

    @property
    def lower_bounds(self) -> Mapping[int, bytes]:
        return self.live.description.lower_bounds

    @property
    def upper_bounds(self) -> Mapping[int, bytes]:
        return self.live.description.upper_bounds

    @property
    def file_path(self) -> str:
        return self.live.path

    @property
    def file_size_in_bytes(self) -> int:
        return 1


class SimulatedCatalog(Catalog):
    """The catalog as one process sees it; `owner` says on whose behalf it commits."""

    def __init__(
        self, server: CatalogServer, calls: Interruptions, errors: ErrorSettings, owner: Callable[[], Any]
    ) -> None:
        self._server, self._calls, self._retries, self._owner = server, calls, errors, owner

    def full_name(self, table: str) -> str:
        return table if "." in table else f"d.{table}"

    def load(self, table: str) -> Table | None:
        name = self.full_name(table)
        with map_java_errors(f"loading table {name}"):
            found = self._calls.call(f"load {name}", lambda: self._server.tables.get(name), catalog_away)
        return None if found is None else self._wrap(name, found)

    def create(
        self,
        table: str,
        schema: Schema,
        partition_by: Any = (),
        properties: Mapping[str, str] | None = None,
        *_: Any,
        **__: Any,
    ) -> Table:
        name = self.full_name(table)

        def make() -> Table:
            with map_java_errors(f"creating table {name}"):
                self._calls.call(
                    f"create {name}",
                    lambda: self._server.tables.get(name) or self._server.create(name, schema, properties or {}),
                    catalog_away,
                    catalog_away,
                )
            created = self.load(table)
            if created is None:
                raise RetriableError(f"creating table {name}: it is not there afterwards")
            return created

        return call_with_retries(lambda: self.load(table) or make(), self._retries)

    def evolve(self, table: Table, columns: pa.Schema) -> None:
        required = frozenset(field.name for field in columns if not field.nullable)
        wanted = build_table_schema(columns, (), required, nanoseconds=False)
        java: JavaTable = table.java

        def change() -> None:
            base = java.now
            new = attrs.evolve(base, schema=_united(base.schema, wanted))
            java.calls.call(f"evolve {base.name}", lambda: java.server.swap(base, new), catalog_away, commit_unanswered)

        table.settle(f"evolving table {table.name}", change)

    def rename_columns(self, table: Table, renames: Mapping[str, str], properties: Mapping[str, str]) -> None:
        java: JavaTable = table.java

        def change() -> None:
            base = java.now
            names = {field.name for field in base.schema.fields}
            wanted = {old: now for old, now in renames.items() if old in names and now not in names}
            fields = [one.model_copy(update={"name": wanted.get(one.name, one.name)}) for one in base.schema.fields]
            schema = Schema(*fields, identifier_field_ids=base.schema.identifier_field_ids)
            new = attrs.evolve(base, schema=schema, properties={**base.properties, **properties})
            java.calls.call(f"rename {base.name}", lambda: java.server.swap(base, new), catalog_away, commit_unanswered)

        table.settle(f"renaming columns of table {table.name}", change)

    def ensure_delete_spec(self, table: Table) -> None:
        pass

    def _wrap(self, name: str, found: Metadata) -> Table:
        java = JavaTable(self._server, self._calls, found, self._owner)
        return SimulatedTable(None, name, java, {"type": "jdbc"}, self._retries)  # type: ignore[arg-type]


def _united(schema: Schema, wanted: Schema) -> Schema:
    """Java's `unionByNameWith`, of columns of the top level: plain types grow, required ones become optional."""
    known, last = {field.name: field for field in schema.fields}, schema.highest_field_id
    fields = []
    for field in wanted.fields:
        if field.name in known:
            before = known[field.name]
            kind = field.field_type if isinstance(field.field_type, PrimitiveType) else before.field_type
            required = before.required and field.required
            fields.append(before.model_copy(update={"field_type": kind, "required": required}))
        else:
            last += 1
            fields.append(NestedField(last, field.name, field.field_type, required=False))
    kept = [field for field in schema.fields if field.name not in {one.name for one in wanted.fields}]
    return Schema(*kept, *fields, identifier_field_ids=schema.identifier_field_ids)


class SimulatedDeletedKeys(DeletedKeysTable):
    """The table of deleted keys; its rows are read here, and it is never tidied."""

    def remembered(self, table: str) -> Rows:
        """Key, date and place of what is remembered of a table."""
        self._table.refresh()
        java: JavaTable = self._table.java
        rows = java.server.rows(java.now.name, java.now.head) if java.now.head is not None else []
        return [row for row in rows if row["connector"] == self._name and row["table"] == table]

    def clean_up(self) -> None:
        pass


@contextmanager
def offsets_in_memory() -> Iterator[None]:
    """Have the offsets table's files be rows, which nobody has to write as Parquet, or to read."""

    def write(table: Table, kind: FileKind, rows: Rows) -> FileDescription:
        table.renew()
        java: JavaTable = table.java
        path = f"{java.location()}/data/{java.server.next_id()}"
        with map_java_errors(f"writing a file of table {table.name}"):
            java.newOutputFile(path).write(rows)
        return FileDescription(path, kind.content, b"", None, 1)

    def read(io: MetadataView, path: str) -> Rows:
        return io.calls.ask(f"read {path}", lambda: io.server.read(path), store_away)

    with replaced(
        ((offset_rows, "write_file", write), (offset_rows, "_read_rows", read), (offset_rows, "pa", _NO_ARROW))
    ):
        yield


class NoRewritesGuard(DeleteGuard):
    """Rewrites of others in this world take no delete away that still has to apply."""

    def check(self, table: Table, checked: int | None, *, wrote: bool) -> None:
        pass
