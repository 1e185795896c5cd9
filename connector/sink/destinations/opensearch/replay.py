"""Repaired dead letters -> documents of their index, at once. On the driver; deleted keys are looked up by Spark."""

from __future__ import annotations

import attrs
from pyspark.sql import SparkSession

from connector.sink.destinations.late_events import drop_late_events
from connector.sink.destinations.opensearch.indexes import OpenSearchIndexes
from connector.sink.destinations.opensearch.write.document_writer import OpenSearchTaskWriter
from connector.sink.destinations.replayed_rows import drop_superseded_rows, find_dropped
from connector.sink.fold.fold import fold
from connector.sink.fold.values.unavailable_values import fill_in_batch
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.destination import ReplayOutcome, ReplayRows
from connector.sink.model.plan import BatchPlan


@attrs.frozen
class OpenSearchReplay:
    """Documents have their versions: one that is replayed twice is the same, and a newer one in the index stays.

    Versions of deleted documents are forgotten by the index, but remembered with their keys.
    """

    spark: SparkSession
    indexes: OpenSearchIndexes

    def find_replayed(self, name: str) -> set[str]:  # noqa: ARG002 - nothing is kept
        """Return none: the mark in the dead letter topic is enough."""
        return set()

    def replay(
        self,
        plan: BatchPlan,
        index: int,
        name: str,  # noqa: ARG002 - the plan knows it
        parts: ReplayRows,
        *,
        execute: bool,
    ) -> ReplayOutcome:
        """Send documents, and wait for what the index says of each. Raises as `Bulk.send`."""
        # No later record is about its key, so a delete need not be remembered.
        writers = OpenSearchTaskWriter(attrs.evolve(self.indexes.writers(), memory=None), plan, plan.label)
        table, standing = plan.tables[index], [part for part, _ in parts]
        if table.upsert:
            standing = self._drop_deleted(plan, index, standing)
        overtaken = find_dropped(parts, standing)
        letters = {tag: one for part, ids in parts for tag, one in zip(part.order.records.tolist(), ids, strict=True)}
        if table.upsert and standing:
            folded = fill_in_batch(fold(standing, table.layout.keys), table.layout.keys)
            if execute:
                list(writers.upsert(table, folded, ()))
            else:
                writers.requests.stale.update(writers.find_stale(table, folded))
        elif execute:
            for part in standing:
                list(writers.append(table, part))
        writers.requests.finish()
        dead = {letters[tag]: reason for tag, reason in writers.requests.dead.items()}
        return ReplayOutcome(overtaken | {letters[tag] for tag in writers.requests.stale}, dead)

    def _drop_deleted(self, plan: BatchPlan, index: int, parts: list[ChangeBatch]) -> list[ChangeBatch]:
        """Leave out the keys that are remembered as deleted by what is newer."""
        table, deleted_keys = plan.tables[index], self.indexes.deleted_keys
        if deleted_keys is None or not table.remembers or table.keep_deletes:
            return parts
        try:
            remembered = deleted_keys.of(table.layout.name)
            return drop_superseded_rows(
                self.spark,
                table,
                parts,
                lambda asked, ranges, _: drop_late_events(asked, ranges.count, plan, table, None, remembered),
            )
        finally:
            deleted_keys.close()
