"""Texts by name -> rows of the offsets table, and back. On the driver; a few rows per connector.

The table has Debezium's own shape (`id`, `offset_data`, `record_insert_ts`). A connector's rows live in one file that
each save replaces, so any engine can read them without applying deletes.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import attrs
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, TimestamptzType

from connector.errors import CommitRefused, ConfigError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_attempts import Ancestors, commit_exactly_once
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.state import system_tables
from connector.iceberg.state.system_tables import SYSTEM_TABLE_PROPERTIES, describe_uncounted, write_file
from connector.iceberg.types.schemas.arrow_types import to_arrow_schema
from connector.iceberg.write.rolling_file import FileKind

OFFSETS_SCHEMA = Schema(
    NestedField(1, "id", StringType(), required=True),
    NestedField(2, "offset_data", StringType(), required=False),
    NestedField(3, "record_insert_ts", TimestamptzType(), required=False),
)
_COLUMNS = to_arrow_schema(OFFSETS_SCHEMA)


@attrs.frozen
class ConnectorKind:
    """A kind of connector that stores offsets; each of its rows has one of the fields, which no other kind's has.

    `exclusive`: nothing is stored where another process of the name stored something since the rows were read.
    """

    label: str
    fields: tuple[str, ...]
    exclusive: bool = False


SINK = ConnectorKind("sink", ("cluster-id",))
SOURCE = ConnectorKind("source", ("table-uuid", "snapshots"))
MAINTAINER = ConnectorKind("maintainer", ("until-ms",), exclusive=True)


class OffsetRows:
    """The rows of one connector: its own, whose id is its name, and one per table, `<name>/<table>`."""

    def __init__(self, catalog: Catalog, table: str, name: str, kind: ConnectorKind) -> None:
        """Open the table, and read this connector's rows; a table that is not there has none.

        Raises:
            ConfigError: the name is that of a connector of another kind; the two would replace each other's rows.
            RetriableError: the catalog is away.
        """
        self._catalog, self._table_name, self._kind = catalog, table, kind
        self._table = catalog.load(table)
        self._name = name
        self._rows: dict[str, str] = {}
        self._foreign: list[dict[str, object]] = []
        self._files: list[FileDescription] = []
        self._seen: int | None = None
        self._load()

    @property
    def connector_row(self) -> str | None:
        """The connector's own row, None before its first save."""
        return self._rows.get(self._name)

    @property
    def by_table(self) -> dict[str, str]:
        """The row of each table, by its full name."""
        prefix = f"{self._name}/"
        return {key.removeprefix(prefix): text for key, text in self._rows.items() if key.startswith(prefix)}

    def put(self, connector_row: str | None, tables: Mapping[str, str]) -> None:
        """Store the connector's own row (None leaves it as it is) and those of some tables, in one commit.

        Raises:
            CommitRefused: another writer changed the same rows; call again after `reload`.
            CommitUnknown: nobody could tell until `errors.retry.timeout`.
            RetriableError: the catalog stayed away.
        """
        if connector_row is not None:
            self._rows[self._name] = connector_row
        for table, text in tables.items():
            self._rows[f"{self._name}/{table}"] = text
        self._replace()

    def forget(self, tables: Iterable[str] | None = None) -> None:
        """Drop the rows of some tables, all rows with None; the next `put` stores it."""
        dropped = None if tables is None else {f"{self._name}/{table}" for table in tables}
        self._rows = {key: text for key, text in self._rows.items() if dropped is not None and key not in dropped}

    def is_stale(self) -> bool:
        """Tell whether another writer committed since the rows were read or stored here; one request to the catalog."""
        table = self._refresh()
        return table is not None and table.snapshot_id != self._seen

    def reload(self) -> None:
        """Read the rows again, as they are in the table now."""
        self._refresh()
        self._load()

    def _refresh(self) -> Table | None:
        if self._table is None:
            self._table = self._catalog.load(self._table_name)
        else:
            self._table.refresh()
        return self._table

    def _load(self) -> None:
        if self._table is None:
            return
        metadata, seen = self._table.metadata(), self._table.snapshot_id
        found: list[tuple[DataFile, list[dict[str, Any]]]] = []
        if metadata.current_snapshot() is not None:
            with self._table.reading("the rows"):
                found = [
                    (task.file, _read_rows(metadata.io, task.file.file_path)) for task in metadata.scan().plan_files()
                ]
        # Not before all is read: half of the rows, stored again, would be all of them.
        self._rows, self._foreign, self._files, self._seen = {}, [], [], seen
        for file, rows in found:
            mine = {row["id"]: row["offset_data"] for row in rows if self._is_mine(row["id"])}
            if mine:
                self._refuse_other_kinds(mine)
                self._rows.update(mine)
                self._foreign += [row for row in rows if not self._is_mine(row["id"])]
                self._files.append(describe_uncounted(_FILE_KIND, file.file_path, file.file_size_in_bytes, len(rows)))

    def _is_mine(self, key: str) -> bool:
        return key == self._name or key.startswith(f"{self._name}/")

    def _refuse_other_kinds(self, rows: Mapping[str, str]) -> None:
        if any(_is_of_another_kind(text, self._kind) for text in rows.values()):
            raise ConfigError(
                f"name: {self._name} is the name of another kind of connector than a {self._kind.label} in the offsets "
                f"table {self._table_name}; give this {self._kind.label} a `name` of its own"
            )

    def _create_table(self) -> Table:
        """Return the table; the first `put` creates it, so that whoever only looks leaves nothing behind."""
        if self._table is None:
            self._table = self._catalog.load(self._table_name) or self._catalog.create(
                self._table_name, OFFSETS_SCHEMA, properties=SYSTEM_TABLE_PROPERTIES
            )
        return self._table

    def _replace(self) -> None:
        table = self._create_table()
        description = self._write_file(table)

        def update() -> Any:
            overwrite = table.java.newOverwrite().set(CREATED_BY, self._name)
            *replaced, new = table.content_files([*self._files, description])
            for file in replaced:
                overwrite.deleteFile(file)
            return overwrite.addFile(new)

        try:
            rule = self._is_unchanged if self._kind.exclusive else None
            commit_exactly_once(table, uuid.uuid4().hex, update, rule, few_manifests=True)
        except CommitRefused:
            system_tables.delete_orphan(table, description)
            raise
        self._files = [description]
        self._seen = table.snapshot_id
        if system_tables.count_snapshots(table) >= system_tables.MAX_SNAPSHOTS:
            system_tables.retain_newest_snapshots(table)
            self._seen = table.snapshot_id

    def _is_unchanged(self, ancestors: Ancestors) -> bool:
        """Tell whether all snapshots since the rows were read are of other connectors."""
        for snapshot in ancestors:
            if int(snapshot.snapshotId()) == self._seen:
                return True
            if snapshot.summary().get(CREATED_BY) == self._name:
                return False
        return self._seen is None

    def _write_file(self, table: Table) -> FileDescription:
        """Write one file with all of this connector's rows through Java's FileIO and give its description."""
        now = datetime.now(UTC)
        rows = [{"id": key, "offset_data": data, "record_insert_ts": now} for key, data in self._rows.items()]
        return write_file(table, _FILE_KIND, pa.Table.from_pylist([*self._foreign, *rows], _COLUMNS))


def _is_of_another_kind(text: str, kind: ConnectorKind) -> bool:
    """Tell by its fields; a text that is no JSON says nothing."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return not (isinstance(document, dict) and document.keys() & set(kind.fields))


def read_all_rows(catalog: Catalog, table: str) -> dict[str, str]:
    """Return the rows of every connector in an offsets table, by id; none if there is no such table.

    Raises:
        RetriableError: the catalog or the store is away.
        ConfigError: it is a table of something else.
    """
    found = catalog.load(table)
    if found is None:
        return {}
    metadata = found.metadata()
    if not _has_offsets(metadata.schema()):
        raise ConfigError(f"table {table} is no offsets table, as it has no texts id and offset_data; name another one")
    if metadata.current_snapshot() is None:
        return {}
    with found.reading("the rows"):
        tasks = list(metadata.scan().plan_files())
        return {row["id"]: row["offset_data"] for task in tasks for row in _read_rows(metadata.io, task.file.file_path)}


def _has_offsets(schema: Schema) -> bool:
    kinds = {field.name: field.field_type for field in schema.fields}
    return all(kinds.get(name) == StringType() for name in ("id", "offset_data"))


def _read_rows(io: FileIO, path: str) -> list[dict[str, Any]]:
    with io.new_input(path).open() as stream:
        rows: list[dict[str, Any]] = pq.read_table(stream).to_pylist()
    return rows


_FILE_KIND = FileKind("data", 0, OFFSETS_SCHEMA, _COLUMNS, 0)
