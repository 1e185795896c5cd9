"""Driver -> tasks: what they are told of a batch, as frozen values, pickled once per job."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Literal

import attrs
import pyarrow as pa

from connector.iceberg.commit.kafka_offsets import ALL_SOURCES, LastTruncate, Watermark, Watermarks
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.types.dotted_names import Path
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.kafka.consumer import PartitionAssignment
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import EventSettings
from connector.settings.iceberg.primary_key import KeySource
from connector.settings.iceberg.routing import RouteSettings
from connector.settings.iceberg.row_lookup import RowLookupSettings
from connector.settings.iceberg.write_mode import DEFAULT_MODE
from connector.sink.model.event_age import is_declared, units_per_second
from connector.sink.model.truncate_scope import TruncateScope, to_legacy_name
from serde.events.positions.log_positions import strip_log_name

VALID_FROM, VALID_TO, IS_CURRENT = "valid_from", "valid_to", "is_current"
"""Columns of a table that keeps history."""


@attrs.frozen
class TablePlan:
    """How one table takes this batch in.

    `tombstones` tells whether a record without value deletes, or only repeats a delete event and is left out.
    `base` is the table's snapshot that the plan is true of, and `known_keys` what it may hold.
    `patches` tells that its events are known to leave values out which the table may hold
    (`lookups.unavailable_values`): then the records come with the header that names the key before
    (`convert.key_change_headers`). `truncated` tells what truncates in the batch emptied: of that what came before is
    left out. `buckets` is how many parts its keys are split into: one for a table with few events, a multiple of the
    reducers for one with many.
    `upsert` keeps one row per key; else every change becomes a row. `write_mode` names how the rows that an upsert
    replaces go (`destinations.iceberg.write_modes`); with `needs_row_lookup` they are looked for in the table,
    as `row_lookup` says.
    `history` keeps every version of a row (`write_modes.scd2`).
    `committed` holds offsets below which this table already has everything; empty in the usual case.
    `dated` tells whether its rows tell how old they are; then `watermarks` tells how far each source has come
    (`fold.watermarks`), and `partitions` how many partitions topics had when the table was last written to.
    `numbered` tells the same of documents, whose changes are given versions (`fold.document_versions`), `remembers`
    that their deleted keys are remembered with them (`destinations.deleted_keys`).
    `after_delete` holds offsets at which a tombstone only repeats the delete before it.
    `truncates` holds the last truncate of an earlier batch of each source that had one.
    `takes_patches` tells whether changes of documents whose row nobody knows in the batch find it in the table.
    `key_configured` tells that settings name its key's columns: record keys may have other fields then.
    `renames` holds the earlier names of its columns, and those that they have now (`convert.column_renames`).
    """

    index: int
    layout: RowLayout
    upsert: bool
    keep_deletes: bool
    tombstones: Literal["delete", "skip"] = "delete"
    base: int | None = None
    known_keys: KeyBounds = KeyBounds()
    committed: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    patches: bool = False
    keys_from: KeySource = "record"
    key_configured: bool = False
    buckets: int = 1
    dated: bool = False
    numbered: bool = False
    remembers: bool = False
    watermarks: Watermarks = attrs.field(factory=dict)
    partitions: Mapping[str, int] = attrs.field(factory=dict)
    after_delete: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    truncates: Mapping[str, LastTruncate] = attrs.field(factory=dict)
    write_mode: str = DEFAULT_MODE
    needs_row_lookup: bool = False
    row_lookup: RowLookupSettings = RowLookupSettings()
    history: bool = False
    truncated: TruncateScope = TruncateScope()
    renames: Mapping[str, str] = attrs.field(factory=dict)
    takes_patches: bool = False

    def find_last_truncate(self, source: str) -> LastTruncate:
        """Return the last truncate of a source (its name without that of its log); an empty one where it had none."""
        truncate = self.truncates.get(source)
        if truncate is None and ALL_SOURCES in self.truncates:
            # Earlier versions did not note whose it was: of one that the table knew by then.
            known = {strip_log_name(name) for marks in self.watermarks.values() for name in marks}
            if known & {source, to_legacy_name(source), ALL_SOURCES}:
                truncate = self.truncates[ALL_SOURCES]
        return truncate or LastTruncate()

    def find_watermarks(self, source: str) -> list[tuple[str, Watermark]]:
        """Return how far a source has come, once for each topic-partition and log, by the log's name."""
        names = {source, to_legacy_name(source), ALL_SOURCES}
        return [
            (name, mark)
            for marks in self.watermarks.values()
            for name, mark in marks.items()
            if strip_log_name(name) in names
        ]

    @property
    def conversion(self) -> Hashable | None:
        """What decides how changes become rows, equal for tables of which one may stand for the other.

        None for a table of which a truncate leaves out changes.
        """
        if self.truncated != TruncateScope():
            return None
        told = (getattr(self, field.name) for field in attrs.fields(TablePlan) if field.name not in _NOT_OF_ROWS)
        return (*told, tuple(self.renames.items()), self.layout.conversion)

    @property
    def keyed(self) -> bool:
        """Whether rows are told apart by the keys of their records."""
        return self.upsert and self.keys_from == "record"

    @property
    def tells_order(self) -> bool:
        """Whether its rows or documents tell how old they are."""
        return self.dated or self.numbered

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell rows of the table apart."""
        return (*self.layout.keys, VALID_FROM) if self.history else self.layout.keys

    @property
    def with_identity_key(self) -> TablePlan:
        """The same with `identity` for its key."""
        return attrs.evolve(self, layout=attrs.evolve(self.layout, id_columns=self.identity))

    @property
    def needs_lookup(self) -> bool:
        """Whether the table may have to be read for the batch."""
        known = bool(self.watermarks or self.truncates) or self.truncated != TruncateScope()
        late = (self.dated or self.remembers) and known
        return self.needs_row_lookup or self.needs_tombstone_lookup or self.patches or self.history or late

    @property
    def needs_tombstone_lookup(self) -> bool:
        """Whether a tombstone may need the row that the table has (soft delete of events without deletes)."""
        return self.upsert and self.keep_deletes and self.tombstones == "delete" and self.base is not None


_NOT_OF_ROWS = {
    *("index", "layout", "base", "known_keys", "committed", "buckets", "watermarks", "partitions", "after_delete"),
    *("truncates", "truncated", "renames"),
}
"""What the plan of a table has for others than the conversion of its rows."""


@attrs.frozen
class FieldRoutes:
    """How events that name their table find it in this batch: the settings, the tables by name, and those refused."""

    rule: RouteSettings
    known: Mapping[str, int]
    refused: Mapping[str, str]

    @property
    def whole(self) -> tuple[str, ...]:
        """The tables that every event goes to; none where a value of the event decides."""
        return () if self.rule.field or self.rule.template else tuple(name for name, _ in self.rule.tables)

    def find_table(self, name: str | None) -> int | None:
        """Return the index of the table that takes events which name it; None where none does, or not yet."""
        return None if name is None or name in self.refused else self.known.get(name)


@attrs.frozen
class BatchPlan:
    """One job over one batch.

    `routes` gives the table of each topic that has one; `ranks` numbers the topic-partitions by name, for the fold.
    `assignment` tells what each map task reads; `reducers` tasks write.
    `refused` gives the reason for topics whose events have no table and can have none.
    `evolve` tells whether tables follow their events (`allow-field-addition`).
    `routing` is set where events name their tables themselves; `routes` is empty then.
    `record_keys` tells whether new tables are keyed by the keys of records, `upserts` whether any table keeps one row
    per key.
    `variants` tells whether nested values become variants in new columns.
    `transaction_topic` holds transaction metadata, no rows; None where no topic was named for it.
    `log_ends` are the offsets at the ends of logs that a topic's keys may have moved away from (`fold.grown_topics`).
    `raw_ms` is the batch's time (epoch milliseconds) where events are kept as text (`icebergevents`), else None.
    """

    label: str
    events: EventSettings
    dedup_column: str
    op_field: str
    excluded_columns: frozenset[str]
    evolve: bool
    tables: tuple[TablePlan, ...]
    routes: Mapping[str, int]
    refused: Mapping[str, str]
    ranks: Mapping[TopicPartition, int]
    assignment: PartitionAssignment
    reducers: int
    max_letters: int
    routing: FieldRoutes | None = None
    case_insensitive: bool = False
    raw_ms: int | None = None
    log_ends: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    transaction_topic: str | None = None
    record_keys: bool = True
    upserts: bool = True
    variants: bool = False

    @property
    def dedup_units_per_second(self) -> int | None:
        """How long a second is in the dedup column; None where it is no time of Debezium's."""
        return units_per_second(self.dedup_column, self.events.add_fields_prefix)

    @property
    def dedup_is_declared(self) -> bool:
        """Whether the dedup column is one of the row's own, that settings declare to tell its place."""
        return is_declared(self.dedup_column, self.events.add_fields_prefix)

    @cached_property
    def conversions(self) -> tuple[int | None, ...]:
        """A number for each table, the same for those that convert changes alike (`TablePlan.conversion`)."""
        numbers: dict[Hashable, int] = {}
        told = (table.conversion for table in self.tables)
        return tuple(None if one is None else numbers.setdefault(one, len(numbers)) for one in told)

    @cached_property
    def nested_columns(self) -> frozenset[str]:
        """The names that columns of lists, objects or any JSON have in the tables, earlier ones too."""
        names: set[str] = set()
        for table in self.tables:
            nested = {field.name for field in table.layout.columns if pa.types.is_nested(field.type)}
            own = nested | table.layout.variants
            names |= own | {before for before, now in table.renames.items() if now in own}
        return frozenset(names)

    @cached_property
    def topics_by_table(self) -> Mapping[int, frozenset[str]]:
        """The topics of each table that has some, by its index."""
        topics: dict[int, set[str]] = {}
        for topic, index in self.routes.items():
            topics.setdefault(index, set()).add(topic)
        return {index: frozenset(names) for index, names in topics.items()}

    def has_grown(self, topic: str, table: TablePlan) -> bool:
        """Tell whether a topic got partitions since the table was last written to: its keys may have moved."""
        before = table.partitions.get(topic, 0)
        return before > 0 and (topic, before) in self.ranks

    @property
    def patches(self) -> bool:
        """Whether a table of the batch takes in events that leave values out."""
        return any(table.patches for table in self.tables)


@attrs.frozen(eq=False)
class SchemaChange:
    """A shape of events that a table is not ready for: the driver makes it ready, then the job runs again.

    `optional` tells of columns whether a schema block allows nulls; `key` is None for events without key. `table` is
    the name that events gave themselves, None where the topic decides. `dated` tells whether the events have dedup
    values. `relaxed` has the paths of columns, and of fields within them, that the table requires and the source does
    not any more.
    """

    topic: str
    row: pa.StructType
    key: pa.StructType | None
    optional: Mapping[str, bool]
    table: str | None = None
    dated: bool = True
    relaxed: frozenset[Path] = frozenset()


@attrs.frozen
class DeadLetterRef:
    """A record that cannot be used, by reference: its bytes stay in Kafka until the letter is written."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
