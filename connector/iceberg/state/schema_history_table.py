"""Tables made and evolved -> rows of the schema history table. On the driver; one small commit per change of schemas.

The table has the shape of Debezium Server's (`id`, `history_data`, `record_insert_ts`); `history_data` is JSON: which
table, its schema id, and Iceberg's own JSON of the schema.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType, TimestamptzType

from connector.errors import CommitRefused
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_attempts import commit_exactly_once
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.state.system_tables import SYSTEM_TABLE_PROPERTIES, delete_orphan, write_file
from connector.iceberg.types.schemas.arrow_types import to_arrow_schema
from connector.iceberg.write.rolling_file import FileKind

SCHEMA_HISTORY_SCHEMA = Schema(
    NestedField(1, "id", StringType(), required=True),
    NestedField(2, "history_data", StringType(), required=False),
    NestedField(3, "record_insert_ts", TimestamptzType(), required=False),
)
_COLUMNS = to_arrow_schema(SCHEMA_HISTORY_SCHEMA)
_FILE_KIND = FileKind("data", 0, SCHEMA_HISTORY_SCHEMA, _COLUMNS, 0)


class SchemaHistoryTable:
    """The history of one connector's tables; the table is made with its first row."""

    def __init__(self, catalog: Catalog, table: str, name: str) -> None:
        """Prepare; nothing is asked yet."""
        self._catalog, self._table_name, self._name = catalog, table, name
        self._table: Table | None = None

    def note(self, tables: Sequence[Table]) -> None:
        """Append the schemas that tables have now, in one commit.

        Raises:
            RetriableError, CommitUnknown: as `commit.commit_attempts.commit_exactly_once`.
        """
        if not tables:
            return
        if self._table is None:
            made = self._catalog.load(self._table_name)
            self._table = made or self._catalog.create(
                self._table_name, SCHEMA_HISTORY_SCHEMA, properties=SYSTEM_TABLE_PROPERTIES
            )
        log = self._table
        rows = pa.Table.from_pylist([self._row(table) for table in tables], _COLUMNS)
        description = write_file(log, _FILE_KIND, rows)

        def update() -> Any:
            append = log.java.newAppend().set(CREATED_BY, self._name)
            for made in log.content_files([description]):
                append.appendFile(made)
            return append

        try:
            commit_exactly_once(log, uuid.uuid4().hex, update, few_manifests=True)
        except CommitRefused:
            delete_orphan(log, description)
            raise

    def _row(self, table: Table) -> dict[str, object]:
        document = {
            "connector": self._name,
            "table": table.name,
            "schema-id": int(table.java.schema().schemaId()),
            "schema": orjson.loads(table.layout().schema_json),
        }
        now = pa.scalar(time.time_ns() // 1000, pa.timestamp("us", "UTC")).as_py()
        return {"id": uuid.uuid4().hex, "history_data": orjson.dumps(document).decode(), "record_insert_ts": now}
