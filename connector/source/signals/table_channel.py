"""Rows that are inserted into an Iceberg table of signals -> signals. On the driver: at most some hundred at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from connector.errors import ConnectorError, FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.snapshot_schema import load_snapshot_schema
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.iceberg.catalog.table import Table
from connector.iceberg.read.file_changes import FileChanges, read_file_changes
from connector.iceberg.read.table_reader import TableReader, release_reads
from connector.source.changes.read_errors import translate_read_errors
from connector.source.changes.row_key import RowKey
from connector.source.changes.snapshot_diff import read_changes
from connector.source.signals.channel import ReceivedSignals
from connector.source.snapshots.signal import InvalidSignal, SignalText

_MAX_ROWS = 500
_COLUMNS = 3
_NO_SNAPSHOT: dict[str, Any] = {"uuid": None, "snapshot-id": None}


class TableChannel:
    """The signals of a table with three text columns, whatever their names: id, type and data.

    A table that is there at the first start is read from its end: what it holds was meant for others. One that is made
    later is read from its beginning.
    """

    name = "source"

    def __init__(self, spark: SparkSession, catalog: Catalog, table: str) -> None:
        """Remember the table's name with namespace; it need not be there yet."""
        self._spark, self._catalog = spark, catalog
        *self._namespace, self._name = table.split(".")
        self._table: Table | None = None
        self._missing_told = False

    def read(self, position: Any) -> ReceivedSignals:
        """Return the rows of one snapshot after `{"uuid", "snapshot-id"}`; the next ones come with the next read."""
        try:
            return self._read(position)
        except ConnectorError:
            # It may have been dropped and made again: another table of its name.
            self._table = None
            raise

    def _read(self, position: Any) -> ReceivedSignals:
        table = self._open()
        if table is None:
            self._tell_missing()
            return ReceivedSignals((), position or _NO_SNAPSHOT)
        history = SnapshotHistory(self._spark, table)
        newest = history.poll()
        here = {"uuid": table.uuid, "snapshot-id": newest}
        if position is None:
            return ReceivedSignals((), here)
        last_read = position["snapshot-id"] if position["uuid"] == table.uuid else None
        if last_read == newest:
            return ReceivedSignals((), here)
        lineage = history.ancestors()
        ids = [None, *(snapshot["snapshot-id"] for snapshot in lineage)]
        if last_read not in ids or (last_read is None and has_expired_parts(lineage)):
            structlog.get_logger().warning(
                "signals have expired with their snapshots, insert them again",
                table=f"{'.'.join(self._namespace)}.{self._name}",
            )
        if last_read not in ids:
            return ReceivedSignals((), here)
        after = lineage[ids.index(last_read)]
        inserts = self._read_inserts(table, after["snapshot-id"]) if _adds_rows(after) else ()
        return ReceivedSignals(inserts, {"uuid": table.uuid, "snapshot-id": after["snapshot-id"]})

    def acknowledge(self) -> None:
        """Nothing has to be told."""

    def close(self) -> None:
        """Nothing is open."""

    def _open(self) -> Table | None:
        if self._table is None:
            self._table = self._catalog.find(tuple(self._namespace), self._name)
        return self._table

    def _tell_missing(self) -> None:
        """Say once that the table is not there, as its name may be wrong."""
        if not self._missing_told:
            self._missing_told = True
            table = ".".join((*self._namespace, self._name))
            structlog.get_logger().warning("the table of signals is not there yet", table=table)

    def _read_inserts(self, table: Table, snapshot_id: int) -> tuple[SignalText | InvalidSignal, ...]:
        files = read_file_changes(self._spark, table, snapshot_id)
        schema = load_snapshot_schema(self._spark, table, snapshot_id)
        if len(schema.names) < _COLUMNS:
            raise FatalError(
                f"table {table.name} has no three columns for id, type and data of signals; create it with three "
                "STRING columns, or name another in signal.data.collection"
            )
        reader = TableReader(self._spark, table, schema)
        try:
            with translate_read_errors(table.name, snapshot_id):
                rows = _find_inserts(reader, files, snapshot_id).limit(_MAX_ROWS + 1).collect()
        finally:
            release_reads(self._spark, table)
        if len(rows) > _MAX_ROWS:
            structlog.get_logger().warning(f"only {_MAX_ROWS} signals of one insert are followed")
        return tuple(_read_row(row, f"{snapshot_id}-{place}") for place, row in enumerate(rows[:_MAX_ROWS]))


def _find_inserts(reader: TableReader, files: FileChanges, snapshot_id: int) -> DataFrame:
    """Return the rows that a snapshot brought; what an engine wrote again beside them, to delete others, is not new."""
    if not (files.removed or files.touched):
        return reader.read_live_rows(files.added).select(*reader.columns[:_COLUMNS])
    after = F.col("after")
    inserts = read_changes(reader, snapshot_id, RowKey()).filter(F.col("op") == "c")
    return inserts.select(
        *(after[name].alias(f"c{place}") for place, name in enumerate(reader.schema.names[:_COLUMNS]))
    )


def has_expired_parts(lineage: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a table, by its snapshots from the oldest on, had others before them."""
    return bool(lineage) and lineage[0].get("parent-snapshot-id") is not None


def _adds_rows(snapshot: dict[str, Any]) -> bool:
    return snapshot.get("summary", {}).get("operation") in ("append", "overwrite")


def _read_row(row: Any, fallback_id: str) -> SignalText | InvalidSignal:
    signal, kind, data = row
    if not isinstance(kind, str):
        return InvalidSignal("its type is no text")
    return SignalText(str(signal) if signal is not None else fallback_id, kind, data)
