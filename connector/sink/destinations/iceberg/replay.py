"""Rows of letters that still stand -> their table or index, at once. On the driver; no Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from connector.errors import DataFault
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from connector.sink.destinations.iceberg.file_writer import write_append, write_upserts
from connector.sink.destinations.iceberg.tables import IcebergTables
from connector.sink.destinations.opensearch.document_writer import (
    OpenSearchTaskWriter,
    OpenSearchWriterFactory,
    record_ids,
)
from connector.sink.fold.fold import fold
from connector.sink.fold.unavailable_values import fill_in_batch, mark_unavailable
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import BatchPlan
from connector.sink.model.task_output import TaskOutput

REPLAYED_PROPERTY = "icebridge.replayed"
"""Summary property of a commit: the ids of the letters that it put through, with commas."""

ReplayRows = Sequence[tuple[ChangeBatch, Sequence[str]]]
"""Rows, and the letter of each."""


@attrs.frozen
class ReplayOutcome:
    """What became of letters that were not simply put through: overtaken ones, and those refused (with the reason)."""

    overtaken: frozenset[str] = frozenset()
    dead: Mapping[str, str] = attrs.field(factory=dict)


class ReplayTarget(Protocol):
    """Where letters go."""

    def before(self, name: str) -> set[str]:
        """Give the letters that were put through before, as far as the table tells."""

    def put(self, plan: BatchPlan, index: int, name: str, parts: ReplayRows) -> ReplayOutcome:
        """Put rows into a table of the plan.

        Raises:
            DataFault: they cannot be, for a reason that is not one letter's.
        """


@attrs.frozen
class IcebergReplay:
    """Each table gets one commit, at the position that it has; the commit names the letters."""

    targets: IcebergTables
    commits: IcebergCommitter

    def before(self, name: str) -> set[str]:
        """Give the letters that a table's commits name already."""
        done: set[str] = set()
        for snapshot in self.targets[name].table.ancestors():
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            done.update(filter(None, summary.get(REPLAYED_PROPERTY, "").split(",")))
        return done

    def put(self, plan: BatchPlan, index: int, name: str, parts: ReplayRows) -> ReplayOutcome:
        """Write and commit. Raises as the protocol says."""
        table, target = plan.tables[index], self.targets[name]
        writer, asked = TableWriter(table.layout, "replay"), list[TaskOutput]()
        if table.mode == "append":
            for part, _ in parts:
                write_append(writer, part, table)
        elif table.history:
            raise DataFault(f"table {target.table.name} has scd-type=2: dead letters cannot be replayed")
        else:
            folded = fill_in_batch(fold([part for part, _ in parts], table.layout.keys), table.layout.keys)
            if mark_unavailable(folded, keep_deletes=table.keep_deletes).any():
                raise DataFault(
                    f"table {target.table.name}: a dead letter lacks values that only the stored row has; add them"
                )
            asked = list(write_upserts(writer, folded, table))
        noted = {REPLAYED_PROPERTY: ",".join(sorted({one for _, ids in parts for one in ids}))}
        files, position = list(writer.close()), target.stored.position
        self.commits.commit(table, name, files, self.commits.asked(asked), position, properties=noted)
        return ReplayOutcome()


@attrs.frozen
class OpenSearchReplay:
    """Documents have their versions: one that is put through twice is the same, and a newer one in the index stays."""

    def before(self, name: str) -> set[str]:  # noqa: ARG002 - nothing is kept
        """Give none: the mark in the dead letter topic is enough."""
        return set()

    def put(self, plan: BatchPlan, index: int, name: str, parts: ReplayRows) -> ReplayOutcome:  # noqa: ARG002 - the plan knows it
        """Send documents, and wait for what the index says of each. Raises as `Bulk.send`."""
        assert isinstance(plan.outlet, OpenSearchWriterFactory)
        # No later record is about its key, so a delete need not be remembered.
        writers = OpenSearchTaskWriter(attrs.evolve(plan.outlet, memory=None), plan, plan.label)
        table = plan.tables[index]
        if table.mode == "append":
            for part, _ in parts:
                list(writers.append(table, part))
        else:
            folded = fill_in_batch(fold([part for part, _ in parts], table.layout.keys), table.layout.keys)
            list(writers.upsert(table, folded, ()))
        writers.finish()
        letters = {tag: one for part, ids in parts for tag, one in zip(record_ids(part).tolist(), ids, strict=True)}
        dead = {letters[tag]: reason for tag, reason in writers.dead.items()}
        return ReplayOutcome(frozenset(letters[tag] for tag in writers.stale), dead)
