"""The tables of a sink: created on first sight, evolved on need, and where each of them stands. On the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

import attrs
import pyarrow as pa
import structlog
from pyiceberg.schema import Schema

from connector.errors import DataFault, FatalError
from connector.iceberg.catalog import Catalog
from connector.iceberg.commit import Committed, Stored, stored
from connector.iceberg.evolution import grown, union
from connector.iceberg.keys import KnownKeys, known_keys, widened
from connector.iceberg.layout import TableLayout
from connector.iceberg.position import TopicPartition
from connector.iceberg.schema_log import SchemaLog
from connector.iceberg.table import Table
from connector.iceberg.types import arrow_schema, table_schema
from connector.settings import SinkSettings, TableSettings
from connector.settings.partitions import PartitionTerm, parse
from connector.settings.table_schema import Column
from connector.sink import raw_events
from connector.sink.decode import DELETED
from connector.sink.matching import merged
from connector.sink.plan import Need, TablePlan
from connector.sink.route import table_name

T = TypeVar("T")

TABLES_AT_ONCE = 8

TOMBSTONES = "icebridge.tombstones"
"""Table property, set when a table is made for events that carry no deletes themselves: then tombstones are deletes."""


@attrs.define(eq=False)
class Target:
    """One table of the sink; `base` is the snapshot that `known_keys` and `stored` are true of."""

    table: Table
    layout: TableLayout
    upsert: bool
    known_keys: KnownKeys
    stored: Stored
    base: int | None


class Targets:
    """All tables of one sink, by name."""

    def __init__(self, settings: SinkSettings, catalog: Catalog) -> None:
        """Start with no table known."""
        self._settings, self._catalog = settings, catalog
        self._targets: dict[str, Target] = {}
        self.refused: dict[str, str] = {}
        self.refused_tables: dict[str, str] = {}
        self.drift: dict[str, set[str]] = {}
        self._patched: set[str] = set()
        self._changed: set[str] = set()
        history = settings.table.history_table
        self._history = SchemaLog(catalog, history, settings.name) if history else None
        self._log = structlog.get_logger()

    def __getitem__(self, table: str) -> Target:
        return self._targets[table]

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def name(self, topic: str) -> str:
        """Give the name of a topic's table."""
        return raw_events.TABLE if self._settings.events_only else table_name(topic, self._settings.table)

    def find(self, topics: Iterable[str]) -> dict[str, str]:
        """Give the table names of those topics whose table exists, loading what is new; none where events decide."""
        if self._settings.table.routes is not None:
            return {}
        names = {topic: self.name(topic) for topic in topics}
        self._load(names.values())
        return {topic: name for topic, name in names.items() if name in self._targets}

    def routed(self) -> list[str]:
        """Give the tables known of those that events name themselves: the configured ones, and those met so far."""
        rule = self._settings.table.routes
        if rule is not None:
            self._load(name for name, _ in rule.tables)
        return [] if rule is None else sorted(self._targets)

    def all_of(self, topics: Iterable[str]) -> list[str]:
        """Give the tables there are of these topics, or of those that events name themselves."""
        return sorted(set(self.find(topics).values())) or self.routed()

    def _load(self, names: Iterable[str]) -> None:
        unknown = [name for name in dict.fromkeys(names) if name not in self._targets]
        loaded = zip(unknown, _beside(self._loaded, unknown), strict=True)
        self._targets.update((name, target) for name, target in loaded if target is not None)

    def satisfy(self, needs: Iterable[Need]) -> None:
        """Create and evolve tables for shapes of events that they were not ready for."""
        by_table: dict[str, list[Need]] = {}
        for need in needs:
            by_table.setdefault(need.table or self.name(need.topic), []).append(need)
        _beside(lambda name: self._satisfied(name, by_table[name]), by_table)
        changed, self._changed = sorted(self._changed), set()
        if self._history is not None:
            self._history.note([self._targets[name].table for name in changed])

    def patch(self, name: str) -> None:
        """Take note that a table's events leave out values that the table may hold."""
        self._patched.add(name)

    def refresh(self, name: str) -> None:
        """Read a table again, after a conflict."""
        table = self._targets[name].table
        table.refresh()
        self._targets[name] = self._target(name, table)

    def plan(self, name: str, index: int, start: Mapping[TopicPartition, int]) -> TablePlan:
        """Give the executors' view of a table for a batch that starts at `start`."""
        target = self._targets[name]
        ahead = {at: o for at, o in target.stored.position.offsets.items() if o > start.get(at, o)}
        return TablePlan(
            index=index,
            layout=target.layout,
            mode="upsert" if target.upsert else "append",
            keep_deletes=self._settings.table.keep_deletes,
            tombstones=self._tombstones(target),
            base=target.base,
            known_keys=target.known_keys,
            committed=ahead,
            patches=name in self._patched and target.upsert,
            keys_from=self._settings.table.keys.comes_from(name),
        )

    def _tombstones(self, target: Target) -> Literal["delete", "skip"]:
        if not target.upsert:
            return "skip"
        told = target.layout.properties.get(TOMBSTONES) == "delete"
        return "delete" if told or not self._settings.table.keep_deletes else "skip"

    def committed(self, name: str, files: Iterable[bytes], done: Committed) -> None:
        """Take note of our own commit."""
        target = self._targets[name]
        parent = target.table.java.currentSnapshot().parentId()
        ours = parent is None if target.base is None else parent is not None and int(parent) == target.base
        # After another writer's commit the bounds that we kept are not those of the whole table.
        keys = widened(target.known_keys, target.layout.schema, files) if ours else KnownKeys()
        target.known_keys = keys if target.upsert else KnownKeys()
        target.stored, target.base = done.stored, done.snapshot_id

    def _loaded(self, name: str) -> Target | None:
        table = self._catalog.load(name)
        return None if table is None else self._target(name, table)

    def _satisfied(self, name: str, wanted: list[Need]) -> None:
        target = self._targets.get(name)
        try:
            if target is not None:
                self._targets[name] = self._evolved(name, target, wanted)
            else:
                # Events may name a table that is there and that no batch has met yet.
                found = self._loaded(name) if wanted[0].table is not None else None
                self._targets[name] = found or self._created(name, wanted)
        except DataFault as fault:
            if wanted[0].table is not None:
                self.refused_tables[name] = str(fault)
            else:
                self.refused.update(dict.fromkeys((need.topic for need in wanted), str(fault)))
            self._log.warning("no table", table=name, topics=sorted({n.topic for n in wanted}), reason=str(fault))

    def _target(self, name: str, table: Table) -> Target:
        if table.format_version < 2:  # noqa: PLR2004 - row-level deletes came with version 2
            raise FatalError(f"table {table.name} is of format version 1, which holds no deletes; upgrade it to 2")
        layout = self._layout(name, table)
        upsert = self._settings.table.upsert and bool(layout.keys)
        if upsert:
            self._catalog.ensure_delete_spec(table)
            layout = self._layout(name, table)
        elif self._settings.table.upsert and name not in self._targets:
            self._log.warning("table has no key: its events are appended", table=table.name)
        keys = known_keys(table, layout.schema) if upsert else KnownKeys()
        return Target(table, layout, upsert, keys, stored(table, self._settings.name), table.snapshot_id)

    def _layout(self, name: str, table: Table) -> TableLayout:
        """Give a table's layout with the key and write properties that are configured.

        Raises:
            FatalError: a configured key column is none of the table's.
        """
        rule = self._settings.table
        layout = table.layout()
        properties = {**layout.properties, **rule.write_properties}
        layout = attrs.evolve(layout, properties=properties, id_columns=rule.keys.of(name) if rule.upsert else ())
        missing = [column for column in layout.id_columns if column not in layout.columns.names]
        if missing:
            raise FatalError(f"table {table.name} has no column {', '.join(missing)}, which is configured as its key")
        return layout

    def _created(self, name: str, needs: list[Need]) -> Target:
        rule = self._settings.table
        if not rule.auto_create:
            raise DataFault(f"table {self._catalog.full_name(name)} does not exist, and auto-create-enabled is false")
        if self._settings.events_only:
            return self._target(name, self._created_for_text(name))
        columns = (
            declared(rule.columns)
            if rule.columns
            else union(merged(need.row) if rule.case_insensitive else need.row for need in needs)
        )
        keys, properties = self._keys(name, needs, columns), self._properties()
        columns = _with_keys(columns, needs, keys)
        if not len(columns):
            raise DataFault("its events have no columns that a table could have")
        if rule.upsert and keys and rule.keep_deletes and DELETED not in columns.names:
            columns = columns.append(pa.field(DELETED, pa.string()))
            properties[TOMBSTONES] = "delete"
        required = _required(needs) if rule.preserve_required else frozenset()
        required |= frozenset(column.name for column in rule.columns if column.required)
        schema = table_schema(columns, keys, required, nanoseconds=rule.format_version > 2)  # noqa: PLR2004
        table = self._catalog.create(
            name, schema, self._partitioning(name, needs, columns), properties, location=rule.location
        )
        self._log.info("table created", table=table.name, columns=len(columns), identifier_fields=list(keys))
        self._changed.add(name)
        return self._target(name, table)

    def _created_for_text(self, name: str) -> Table:
        properties, order = self._properties(), raw_events.SORTED_BY
        return self._catalog.create(name, raw_events.SCHEMA, raw_events.PARTITIONS, properties, sort_by=order)

    def _keys(self, name: str, needs: list[Need], columns: pa.Schema) -> tuple[str, ...]:
        rule = self._settings.table
        wanted = rule.keys.of(name) if rule.keys.mode != "none" else ()
        if rule.keys.mode == "none":
            return ()
        if not wanted:
            return _identifiers(needs, rule)
        there = columns.names
        if rule.keys.comes_from(name) == "record":
            there = [field for need in needs if need.key is not None for field in need.key.names]
        missing = [column for column in wanted if column not in there]
        if missing:
            raise DataFault(f"its events have no field {', '.join(missing)}, which is configured as its key")
        return wanted

    def _evolved(self, name: str, target: Target, needs: list[Need]) -> Target:
        before = columns = target.layout.columns
        for need in needs:
            columns = grown(columns, need.row, add=self._settings.table.allow_field_addition)
        self._catalog.evolve(target.table, columns)
        new = (f for f in columns if f.name not in before.names or f.type != before.field(f.name).type)
        self.drifted(name, (field.name for field in new))
        self._changed.add(name)
        self._log.info("table evolved", table=target.table.name, columns=len(columns))
        return attrs.evolve(target, layout=self._layout(name, target.table))

    def drifted(self, name: str, fields: Iterable[str]) -> None:
        """Take note of fields whose events differed from the table: added, widened, or left out."""
        self.drift.setdefault(name, set()).update(fields)

    def _properties(self) -> dict[str, str]:
        rule = self._settings.table
        own = {"format-version": str(rule.format_version), "write.format.default": rule.write_format}
        return {**own, **self._settings.catalog.table_properties, **rule.create_properties}

    def _partitioning(self, name: str, needs: list[Need], columns: pa.Schema) -> tuple[PartitionTerm, ...]:
        rule = self._settings.table
        own = [rule.partition_by_table[k] for k in (name, *(n.topic for n in needs)) if k in rule.partition_by_table]
        if own:
            return tuple(parse(term) for term in own[0])
        terms = tuple(parse(term) for term in rule.partition_by)
        missing = [term.column for term in terms if term.column not in columns.names]
        if missing:
            self._log.warning("partition-by names columns the table has not", table=name, columns=missing)
        return tuple(term for term in terms if term.column in columns.names)


def declared(columns: Iterable[Column]) -> pa.Schema:
    """Give the columns that the settings declare, in Arrow's types."""
    fields = [
        {"id": place, "name": column.name, "required": column.required, "type": column.type}
        for place, column in enumerate(columns, start=1)
    ]
    return arrow_schema(Schema.model_validate({"type": "struct", "fields": fields}))


def _beside(work: Callable[[str], T], names: Iterable[str]) -> list[T]:
    """Do the same for several tables at once: each waits for the catalog and the store most of the time."""
    with ThreadPoolExecutor(TABLES_AT_ONCE) as pool:
        return list(pool.map(work, names))


def _identifiers(needs: list[Need], rule: TableSettings) -> tuple[str, ...]:
    # Records without key beside others that have one are single faults, not another kind of table.
    keys = {tuple(need.key.names) for need in needs if need.key is not None}
    if not rule.create_identifier_fields or not keys:
        return ()
    if len(keys) > 1:
        raise DataFault(f"its events have keys of different fields: {', '.join(map(str, sorted(keys)))}")
    return keys.pop()


def _with_keys(columns: pa.Schema, needs: list[Need], keys: tuple[str, ...]) -> pa.Schema:
    """Add key fields that the rows do not have, in front, and take the key's types for those that they have."""
    shapes = [pa.struct([need.key.field(name) for name in keys]) for need in needs if need.key is not None and keys]
    found = union(shapes)
    if any(pa.types.is_nested(field.type) or pa.types.is_floating(field.type) for field in found):
        raise DataFault("its key has a field of a type that identifies nothing (nested, or floating point)")
    types = dict(zip(found.names, found.types, strict=True))
    front = [field for field in found if field.name not in columns.names]
    return pa.schema([*front, *(field.with_type(types.get(field.name, field.type)) for field in columns)])


def _required(needs: list[Need]) -> frozenset[str]:
    return frozenset(name for need in needs for name, optional in need.optional.items() if not optional)
