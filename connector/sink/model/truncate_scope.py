"""Truncates of a table's sources -> what each of them empties: the table, its source's rows, or nothing. Pure rules.

A table may take several source tables: topics that share it, a topic that carries several, events that name it. A
truncate is about one of them. Its rows are told by the columns that unwrapping adds (`__table`, `__db`, `__schema`,
`__name`); where these do not tell it from the others nothing is emptied, and the truncate is a dead letter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs

from connector.sink.model.truncates import TableTruncate, Truncate

_NAME_PARTS = {3: ("name", "db", "table"), 4: ("name", "db", "schema", "table")}
_REQUIRED_PARTS = ("db", "schema", "table")

REFUSED_REASON = (
    "a truncate of one of several sources of {table}, whose rows no columns tell apart: nothing was emptied; have "
    "debezium.transforms.unwrap.add.fields add table, db and schema to its rows, or give each source a table of its own"
)


@attrs.frozen
class SourceRows:
    """The rows of one source: those with these values of text columns."""

    values: tuple[tuple[str, str], ...]


@attrs.frozen
class TruncateScope:
    """What truncates of a batch empty of one table: all of it, or rows of sources; `refused` sources lose none."""

    whole: TableTruncate | None = None
    of_sources: Mapping[str, tuple[TableTruncate, SourceRows]] = attrs.field(factory=dict)
    refused: frozenset[str] = frozenset()

    @property
    def emptied(self) -> tuple[tuple[TableTruncate, SourceRows], ...]:
        """What is emptied by which truncate; of no values are all rows."""
        whole = () if self.whole is None else ((self.whole, SourceRows(())),)
        return (*whole, *self.of_sources.values())


@attrs.frozen
class TableSources:
    """What is known of the sources of a table: their names ("server.database.schema.table"), the topics that it takes.

    `all_known` tells that no other source has rows in it; `routed` that any topic may have events for it;
    `partitions` is how many topic-partitions may have events for it.
    """

    names: frozenset[str]
    topics: frozenset[str]
    all_known: bool
    routed: bool = False
    partitions: int = 0

    def is_only(self, name: str) -> bool:
        """Tell whether the table takes nothing but this source."""
        if self._others(name) or len(self.topics) > 1:
            return False
        named = bool(self.topics) and all(_is_named_after(topic, name) for topic in self.topics)
        return self._all_known_beside(name) or (named and not self.routed)

    def _all_known_beside(self, name: str) -> bool:
        """Earlier versions named sources without their schema: such a name may stand for one of another schema too."""
        return self.all_known and not self.names & {to_legacy_name(name)} - {name}

    def _others(self, name: str) -> frozenset[str]:
        return self.names - {name, to_legacy_name(name)}

    def rows_of(self, name: str, columns: Collection[str], prefix: str) -> SourceRows | None:
        """Tell a source's rows from those of the others; None where the table's columns cannot."""
        own = _parse_source_name(name)
        parts = {part: value for part, value in own.items() if value and f"{prefix}{part}" in columns}
        others = [_parse_source_name(other) for other in self._others(name)]
        apart = bool(parts) and all(any(other.get(part) != parts[part] for part in parts) for other in others if other)
        certain = self._all_known_beside(name) and all(others)
        if not apart or not (certain or all(part in parts for part in _REQUIRED_PARTS if own.get(part))):
            return None
        return SourceRows(tuple((f"{prefix}{part}", value) for part, value in parts.items()))


def to_legacy_name(name: str) -> str:
    """Return the name that earlier versions gave a source that has a schema."""
    parts = name.split(".")
    return ".".join((*parts[:2], parts[3])) if len(parts) == 4 else name  # noqa: PLR2004 - server, db, schema, table


def find_source_columns(columns: Iterable[str], add_fields: Iterable[str], prefix: str) -> frozenset[str]:
    """Return the columns that unwrapping adds by these names; others of such a name are the source's own."""
    return frozenset(columns) & {f"{prefix}{term}" for term in add_fields}


def scope_truncates(
    truncates: Iterable[Truncate], sources: TableSources, columns: Collection[str], prefix: str
) -> TruncateScope:
    """Decide what the truncates of a table empty.

    Args:
        truncates: of one table.
        sources: what is known of its rows.
        columns: those that tell sources (`find_source_columns`).
        prefix: of the names of these.
    """
    by_source: dict[str, list[Truncate]] = {}
    alone = sources.partitions == 1
    for each in truncates:
        by_source.setdefault(each.source, []).append(each)
    if len(by_source) == 1 and sources.is_only(next(iter(by_source))):
        return TruncateScope(whole=TableTruncate.of(*by_source.values(), alone=alone))
    rows = {name: sources.rows_of(name, columns, prefix) for name in by_source}
    scoped = {
        name: (TableTruncate.of(by_source[name], alone=alone), found)
        for name, found in rows.items()
        if found is not None
    }
    return TruncateScope(of_sources=scoped, refused=frozenset(by_source.keys() - scoped.keys()))


def scope_past_truncates(truncates: Iterable[Truncate], sources: TableSources) -> TruncateScope:
    """Decide what truncates, which had their way when they came, mean for rows from before them.

    Those of the same source are gone, and all where the table takes no other. Whether columns tell rows apart matters
    no more.
    """
    by_source: dict[str, list[Truncate]] = {}
    for each in truncates:
        by_source.setdefault(each.source, []).append(each)
    if len(by_source) == 1 and sources.is_only(next(iter(by_source))):
        return TruncateScope(whole=TableTruncate.of(*by_source.values()))
    return TruncateScope(
        of_sources={name: (TableTruncate.of(found), SourceRows(())) for name, found in by_source.items()}
    )


def _parse_source_name(name: str) -> dict[str, str]:
    """Return the parts of a source's name; none where they cannot be told, as a name among them has a dot."""
    values = name.split(".")
    return dict(zip(_NAME_PARTS.get(len(values), ()), values, strict=False))


def _is_named_after(topic: str, name: str) -> bool:
    """Tell whether a topic has the name that Debezium gives that of one table."""
    part = _parse_source_name(name)
    if not part.get("table"):
        return False
    around = [part[key] for key in ("schema", "db", "name") if part.get(key)]
    return topic in {f"{part['name']}.{part['table']}", f"{part['db']}.{part['table']}"} or any(
        topic.endswith(f".{each}.{part['table']}") for each in around
    )
