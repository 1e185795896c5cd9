"""What the driver tells the tasks of a batch: frozen values, pickled once per job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs
import pyarrow as pa

from connector.iceberg.keys import KnownKeys
from connector.iceberg.layout import TableLayout
from connector.iceberg.position import TopicPartition
from connector.kafka.fetch import Feed
from connector.settings import EventSettings
from connector.settings.key_columns import KeysFrom
from connector.sink.routing import FieldRoutes
from connector.sink.truncates import Cut


@attrs.frozen
class TablePlan:
    """How one table takes this batch in.

    `tombstones` tells whether a record without value deletes, or only repeats a delete event and is left out.
    `base` is the table's snapshot that the plan is true of, and `known_keys` what it may hold.
    `patches` tells that its events are known to leave values out which the table may hold (`connector.sink.patch`):
    then the records come with the header that names the key before (`connector.sink.moves`).
    `cut` is where a truncate in the batch emptied it: what came before that is left out.
    `committed` holds offsets below which this table already has everything; empty in the usual case.
    """

    index: int
    layout: TableLayout
    mode: Literal["append", "upsert"]
    keep_deletes: bool
    tombstones: Literal["delete", "skip"] = "delete"
    base: int | None = None
    known_keys: KnownKeys = KnownKeys()
    committed: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    patches: bool = False
    cut: Cut | None = None
    keys_from: KeysFrom = "record"

    @property
    def keyed(self) -> bool:
        """Whether rows are told apart by the keys of their records."""
        return self.mode == "upsert" and self.keys_from == "record"

    @property
    def recalls(self) -> bool:
        """Whether a tombstone may need the row that the table has (soft delete of events without deletes)."""
        return self.mode == "upsert" and self.keep_deletes and self.tombstones == "delete" and self.base is not None


@attrs.frozen
class BatchPlan:
    """One job over one batch.

    `routes` gives the table of each topic that has one; `ranks` numbers the topic-partitions by name, for the fold.
    `feed` tells what each map task reads; `buckets` is how many parts the keys are split into, `reducers` tasks write
    them.
    `refused` gives the reason for topics whose events have no table and can have none.
    `evolve` tells whether tables follow their events (`allow-field-addition`).
    `routing` is set where events name their tables themselves; `routes` is empty then.
    `record_keys` tells whether new tables are keyed by the keys of records, `upserts` whether any table keeps one row
    per key.
    `raw_ms` is the batch's time (epoch milliseconds) where events are kept as text (`icebergevents`), else None.
    """

    label: str
    catalog: str
    events: EventSettings
    dedup_column: str
    op_field: str
    excluded_columns: frozenset[str]
    evolve: bool
    tables: tuple[TablePlan, ...]
    routes: Mapping[str, int]
    refused: Mapping[str, str]
    ranks: Mapping[TopicPartition, int]
    feed: Feed
    buckets: int
    reducers: int
    max_letters: int
    routing: FieldRoutes | None = None
    case_insensitive: bool = False
    raw_ms: int | None = None
    record_keys: bool = True
    upserts: bool = True

    @property
    def patches(self) -> bool:
        """Whether a table of the batch takes in events that leave values out."""
        return any(table.patches for table in self.tables)


@attrs.frozen(eq=False)
class Need:
    """A shape of events that a table is not ready for: the driver makes it ready, then the job runs again.

    `optional` tells of columns whether a schema block allows nulls; `key` is None for events without key. `table` is
    the name that events gave themselves, None where the topic decides.
    """

    topic: str
    row: pa.StructType
    key: pa.StructType | None
    optional: Mapping[str, bool]
    table: str | None = None


@attrs.frozen
class Letter:
    """A record that cannot be used, by reference: its bytes stay in Kafka until the letter is written."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str


@attrs.frozen
class Tally:
    """What a task saw: counts of records.

    `nulled` counts values that became null as they could not be converted; `drift` names what events have and their
    table does not take (table index, field).
    """

    events: int = 0
    dead: int = 0
    tombstones: int = 0
    ignored: int = 0
    truncates: int = 0
    nulled: int = 0
    drift: frozenset[tuple[int, str]] = frozenset()

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.events + other.events,
            self.dead + other.dead,
            self.tombstones + other.tombstones,
            self.ignored + other.ignored,
            self.truncates + other.truncates,
            self.nulled + other.nulled,
            self.drift | other.drift,
        )
