"""Where the rows of a batch go: files of Iceberg tables (`iceberg.table_writer`), or documents of an index.

Fetching, decoding and folding are the same for all of them. The driver makes an outlet and it travels in the plan;
each task opens it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from connector.kafka.consumer.consumer_records import ConsumerRecords
    from connector.sink.model.change_rows import ChangeBatch, FoldedChanges
    from connector.sink.model.plan import BatchPlan, TablePlan
    from connector.sink.model.task_output import TaskOutput


class TaskWriter(Protocol):
    """What one task writes, to any number of tables. Parcels are handed on as they come, descriptions at the end."""

    def append(self, table: TablePlan, part: ChangeBatch) -> Iterator[TaskOutput]:
        """Write every change as a row."""

    def moved(
        self, table: TablePlan, part: ChangeBatch, run: ConsumerRecords
    ) -> tuple[ChangeBatch, Iterable[TaskOutput]]:
        """Look at the keys that a run's headers name; give the part with what they say, and parcels to hand on."""

    def upsert(self, table: TablePlan, folded: FoldedChanges, elsewhere: Sequence[bytes]) -> Iterator[TaskOutput]:
        """Bring the winners of a bucket in; `elsewhere` are the payloads that `moved` had for it."""

    def close(self) -> Iterator[TaskOutput]:
        """Finish, and describe what was written (`parcels.FILE`)."""


class WriterFactory(Protocol):
    """Opens the writers of a task; `follows_keys` tells whether every run comes with the headers of both keys."""

    @property
    def follows_keys(self) -> bool: ...  # noqa: D102

    def open(self, plan: BatchPlan, label: str) -> TaskWriter:
        """Begin in one task; `label` tells it from others."""
