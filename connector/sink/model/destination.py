"""What a sink's destinations have in common, for the driver: Iceberg tables, or indexes of OpenSearch.

`TableRegistry` knows the tables, makes them and plans them; `Committer` brings a finished job's outcome in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import attrs

from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.ancestry import StoredCommit
from connector.iceberg.commit.kafka_position import KafkaOffsets, TopicPartition
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.sink.model.outlet import WriterFactory
from connector.sink.model.truncate_scope import TruncateScope

if TYPE_CHECKING:
    from connector.sink.model.plan import BatchPlan, SchemaChange, TablePlan
    from connector.sink.model.result import JobResult


@attrs.frozen
class TableCommit:
    """What became of a batch in one table: its full name, where it stands now, and counts for people.

    `uuid`, `snapshot_id` and `sequence_number` name the commit, where it was one.
    """

    name: str
    position: KafkaOffsets
    counts: Mapping[str, int] = attrs.field(factory=dict)
    uuid: str = ""
    snapshot_id: int | None = None
    sequence_number: int = 0

    @property
    def noted(self) -> StoredCommit:
        """What the offsets table is to say of the table."""
        return StoredCommit(self.position, self.uuid, self.snapshot_id, self.sequence_number)

    def after(self, before: TableCommit | None) -> TableCommit:
        """Add what an earlier try of the same batch did."""
        if before is None:
            return self
        every = {*before.counts, *self.counts}
        return attrs.evolve(
            self, counts={what: before.counts.get(what, 0) + self.counts.get(what, 0) for what in every}
        )


class TableRegistry(Protocol):
    """All tables of one sink, by name. `refused`: topics, and named tables, that can have none, and why.

    `deleted_keys` remembers hard deletes, None where that is not needed.
    """

    refused: dict[str, str]
    refused_tables: dict[str, str]
    drift: dict[str, set[str]]
    deleted_keys: DeletedKeysTable | None

    @property
    def outlet(self) -> WriterFactory:
        """Where tasks write."""

    def find(self, topics: Iterable[str]) -> dict[str, str]:
        """Give the table names of those topics whose table exists."""

    def routed(self) -> list[str]:
        """Give the tables known of those that events name themselves."""

    def reading(self, *names: str) -> AbstractContextManager[None]:
        """Have what fails because its snapshot expired meanwhile tried again: RetriableError."""

    def plan(self, name: str, index: int, start: Mapping[TopicPartition, int]) -> TablePlan:
        """Give the executors' view of a table for a batch that starts at `start`."""

    def apply_schema_changes(self, needs: Iterable[SchemaChange]) -> None:
        """Make and evolve tables for shapes of events that they were not ready for."""

    def patch(self, name: str) -> None:
        """Take note that a table's events leave out values that the table may hold."""

    def record_drift(self, name: str, fields: Iterable[str]) -> None:
        """Take note of fields in which events and table differ."""

    def label(self, name: str) -> str:
        """Give the full name of a table, for people and the offsets table."""

    def tables(self, names: Iterable[str]) -> Sequence[Table]:
        """Give Iceberg's tables of these names, for look-ups; none where there are no such tables."""


class Committer(Protocol):
    """Brings a job's outcome into the tables."""

    def discard(self, names: list[str], result: JobResult) -> None:
        """Let go of what a job wrote; it will run again."""

    def cut(self, plan: BatchPlan, names: list[str], cuts: Mapping[int, TruncateScope]) -> None:
        """Take note of truncates, by index of their table, for which the job will run again.

        What a destination shows at once goes now; tables lose it with the batch's commit.
        """

    def land(
        self, plan: BatchPlan, names: list[str], result: JobResult, position: KafkaOffsets
    ) -> dict[str, TableCommit]:
        """Empty the tables that were truncated, and make a job's outcome visible at the batch's end position.

        Gives what became of each table that changed, by name.
        """
