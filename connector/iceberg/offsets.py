"""Positions -> the offsets table, and back (design, section 5). On the driver; a few rows per connector."""

from __future__ import annotations

from collections.abc import Mapping

from connector.iceberg.catalog import Catalog
from connector.iceberg.position import Position
from connector.iceberg.stored import StoredRows


class OffsetsTable:
    """The stored positions of one sink."""

    def __init__(self, catalog: Catalog, table: str, name: str) -> None:
        """Open the table, or create it, and read this connector's rows.

        Raises:
            RetriableError: the catalog is away.
        """
        self._rows = StoredRows(catalog, table, name)

    @property
    def position(self) -> Position | None:
        """Where the connector stands, None before its first save."""
        text = self._rows.own
        return None if text is None else Position.parse(text)

    @property
    def tables(self) -> dict[str, Position]:
        """Where each target table stands, by its full name."""
        return {table: Position.parse(text) for table, text in self._rows.by_table.items()}

    def save(self, position: Position, tables: Mapping[str, Position]) -> None:
        """Store the connector's position and those of some tables, in one commit.

        Raises:
            RetriableError: another writer changed the same rows.
        """
        self._rows.put(_text(position), {table: _text(at) for table, at in tables.items()})

    def replace(self, position: Position, tables: Mapping[str, Position]) -> None:
        """Store exactly these positions, forgetting tables that are not named (`icebridge offsets reset`)."""
        self._rows.forget()
        self.save(position, tables)


def _text(position: Position) -> str:
    return position.json().decode()
