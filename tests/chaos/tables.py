"""The tables of the load -> their columns, and rows as texts that compare whatever program they were read by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from attrs import frozen

SCHEMA, MARKER = "public", "marker"
Key = tuple[str, ...]
Values = tuple[str | None, ...]


@frozen
class Table:
    """A table of the source; `kinds` is column -> how its values are read."""

    name: str
    keys: tuple[str, ...]
    kinds: Mapping[str, str]
    create: str

    def key_of(self, row: Mapping[str, Any]) -> Key:
        """The row's key, as texts."""
        return tuple(str(row[name]) for name in self.keys)

    def values_of(self, row: Mapping[str, Any]) -> Values:
        """All of the row's values, as texts; a column that the reader's row lacks is null."""
        return tuple(_plain(kind, row.get(name)) for name, kind in self.kinds.items())


PEOPLE = Table(
    "people",
    ("id",),
    {"id": "number", "name": "text", "n": "number", "amount": "decimal", "at": "time", "big": "text"},
    "CREATE TABLE people (id bigint PRIMARY KEY, name text NOT NULL, n integer, amount numeric(12,2), "
    "at timestamp with time zone, big text)",
)
ORDERS = Table(
    "orders",
    ("region", "id"),
    {"region": "text", "id": "number", "n": "number", "payload": "text"},
    "CREATE TABLE orders (region varchar(8) NOT NULL, id integer NOT NULL, n bigint, payload text, "
    "PRIMARY KEY (region, id))",
)
TABLES = (PEOPLE, ORDERS)
ONLY_IN_POSTGRES = (
    # What is large is stored aside, and events leave it out where it did not change.
    "ALTER TABLE people ALTER COLUMN big SET STORAGE EXTERNAL",
    "ALTER TABLE orders REPLICA IDENTITY FULL",
    f"CREATE TABLE {MARKER} (id integer PRIMARY KEY, n integer)",
)


def mark(number: int) -> str:
    """Return the statement that writes a number into the marker's one row."""
    return f"INSERT INTO {MARKER} (id, n) VALUES (1, {number}) ON CONFLICT (id) DO UPDATE SET n = excluded.n"


def _plain(kind: str, value: Any) -> str | None:
    return None if value is None else _PLAIN[kind](value)


def _time(value: Any) -> str:
    read = datetime.fromisoformat(value) if isinstance(value, str) else value
    return str(read.astimezone(UTC).isoformat(timespec="microseconds"))


_PLAIN: Mapping[str, Callable[[Any], str]] = {
    "number": lambda value: str(int(value)),
    "text": str,
    "decimal": lambda value: f"{Decimal(str(value)):.2f}",
    "time": _time,
}
