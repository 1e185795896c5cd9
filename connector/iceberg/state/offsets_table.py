"""Positions -> the offsets table, and back. On the driver; a few rows per connector."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from connector.errors import CommitRefused, FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.iceberg.state.offset_rows import SINK, OffsetRows

_TABLE_KEY = "table"


class OffsetsTable:
    """The stored positions of one sink; a second sink with the same name is noticed."""

    def __init__(self, catalog: Catalog, table: str, name: str) -> None:
        """Open the table, and read this connector's rows; the first save creates it.

        Raises:
            RetriableError: the catalog is away.
        """
        self._rows, self._name = OffsetRows(catalog, table, name, SINK), name
        self._own = self._rows.connector_row

    @property
    def position(self) -> KafkaOffsets | None:
        """Where the connector stands, None before its first save."""
        return None if self._own is None else KafkaOffsets.parse(self._own)

    @property
    def tables(self) -> dict[str, StoredCommit]:
        """Where each target table stands, by its full name."""
        return {table: _decode_commit(text) for table, text in self._rows.by_table.items()}

    def save(self, position: KafkaOffsets, tables: Mapping[str, StoredCommit]) -> None:
        """Store the connector's position and those of some tables, in one commit.

        Of a table that another process has committed to since, and stored it, that later commit stays: an earlier one
        would not tell of a rollback in between.

        Raises:
            RetriableError: the catalog is away, or another connector was faster.
            CommitUnknown: nobody could tell whether it is stored until `errors.retry.timeout`.
            FatalError: another process with the same name stored its position.
        """
        own = position.json().decode()
        if self._rows.is_stale():
            self._rows.reload()
            self._check(own)
        try:
            self._rows.put(own, {table: _encode_commit(noted) for table, noted in self._leave_later(tables).items()})
        except CommitRefused:
            self._rows.reload()
            if not self._check(own):
                raise
        self._own = own

    def replace(self, position: KafkaOffsets, tables: Mapping[str, StoredCommit]) -> None:
        """Store exactly these positions, forgetting tables that are not named (`icebridge offsets reset`).

        Raises:
            RetriableError: the catalog is away, or another connector was faster.
            CommitUnknown: as `save`.
            FatalError: another process with the same name stored its position since this one was read.
        """
        self._rows.forget()
        try:
            self._rows.put(position.json().decode(), {table: _encode_commit(noted) for table, noted in tables.items()})
        except CommitRefused:
            self._rows.reload()
            if self._rows.connector_row != self._own:
                raise FatalError(
                    f"the stored offsets are not those that were to be replaced: a sink named {self._name} has stored "
                    "others meanwhile; stop it, and reset them again"
                ) from None
            raise
        self._own = self._rows.connector_row

    def _leave_later(self, tables: Mapping[str, StoredCommit]) -> dict[str, StoredCommit]:
        """Return the commits that are to take the place of what is stored of their tables."""
        stored = self._rows.by_table
        return {
            table: noted
            for table, noted in tables.items()
            if not (table in stored and noted.is_overtaken(_decode_commit(stored[table])))
        }

    def _check(self, own: str) -> bool:
        """Whether the position is stored already; raise when another process stored one."""
        if self._rows.connector_row not in (own, self._own):
            raise FatalError(
                f"the stored offsets are not those that this process wrote: another sink named {self._name} is "
                "running; stop it, or give one of them another `name`"
            )
        return self._rows.connector_row == own and own != self._own


def _encode_commit(noted: StoredCommit) -> str:
    place = {"uuid": noted.uuid, "snapshot-id": noted.snapshot_id, "sequence-number": noted.sequence_number}
    return orjson.dumps(
        {**orjson.loads(noted.position.json()), _TABLE_KEY: place}, option=orjson.OPT_SORT_KEYS
    ).decode()


def _decode_commit(text: str) -> StoredCommit:
    place = orjson.loads(text).get(_TABLE_KEY, {})
    return StoredCommit(
        KafkaOffsets.parse(text), place.get("uuid", ""), place.get("snapshot-id"), place.get("sequence-number", 0)
    )
