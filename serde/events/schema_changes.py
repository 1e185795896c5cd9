"""a connector's schema change events -> which columns of each table have which names by now (pure).

Source: Debezium's pages of MySQL, MariaDB, Oracle, Db2 and SQL Server, "Schema change topic": `source`, `ddl`, and by
table `tableChanges` with its id and the columns that it has from then on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from serde.events.ddl import find_column_renames

_PART = re.compile(r'"((?:[^"]|"")*)"')
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._-]")
_WITH_DATABASE = 3


@attrs.frozen
class TableChange:
    """What one event says of a table: the topics that its rows may go to, its columns, the columns it renamed."""

    topics: tuple[str, ...]
    columns: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]


def read_table_changes(event: Mapping[str, Any]) -> Iterator[TableChange]:
    """Read the tables of one event; none where it is of another kind."""
    source, changes = event.get("source"), event.get("tableChanges")
    if not isinstance(source, Mapping) or not isinstance(changes, list):
        return
    renames = tuple(find_column_renames(str(event.get("ddl") or "")))
    for change in _mappings(changes):
        table = next(_mappings([change.get("table")]), {})
        columns = tuple(str(column["name"]) for column in _mappings(table.get("columns")) if "name" in column)
        yield TableChange(_name_topics(str(source.get("name")), str(change.get("id"))), columns, renames)


def _mappings(found: Any) -> Iterator[Mapping[str, Any]]:
    """The mappings of a list; what anybody else writes to the topic may be anything."""
    return (one for one in found if isinstance(one, Mapping)) if isinstance(found, list) else iter(())


def _name_topics(prefix: str, table_id: str) -> tuple[str, ...]:
    """The names that a table's topic can have: of three parts some connectors leave the database out."""
    parts = [part.replace('""', '"') for part in _PART.findall(table_id)] or table_id.split(".")
    forms = (parts, parts[1:]) if len(parts) == _WITH_DATABASE else (parts,)
    return tuple(_NOT_IN_TOPICS.sub("_", ".".join((prefix, *form))) for form in forms)


@attrs.define
class ColumnNames:
    """The names that the columns of one table have had: `current` by each earlier one, and all that were seen.

    A rename is followed when its new name was no column's before. A name that comes back, as where two columns swap
    theirs, says nothing of which column an event means, so it stays a column of its own.
    """

    seen: set[str] = attrs.field(factory=set)
    current: dict[str, str] = attrs.field(factory=dict)

    def note(self, change: TableChange) -> None:
        """Take an event in."""
        for before, after in change.renames:
            old, new = _match_name(before, self.seen), _match_name(after, change.columns)
            if new is None or new in self.seen:
                continue
            for name, now in self.current.items():
                if now == old:
                    self.current[name] = new
            self.current[old or before] = new
            self.seen |= {old or before, new}
        self.seen.update(change.columns)


def _match_name(name: str, names: Iterable[str]) -> str | None:
    """The name as it is in a list: exactly, else whatever its case, as databases compare unquoted ones."""
    listed = list(names)
    if name in listed:
        return name
    return next((one for one in listed if one.lower() == name.lower()), None)
