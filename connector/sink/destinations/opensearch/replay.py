"""Repaired dead letters -> documents of their index, at once. On the driver; no Spark job."""

from __future__ import annotations

import attrs

from connector.sink.destinations.opensearch.document_writer import OpenSearchTaskWriter, record_ids
from connector.sink.destinations.opensearch.indexes import OpenSearchIndexes
from connector.sink.fold.fold import fold
from connector.sink.fold.unavailable_values import fill_in_batch
from connector.sink.model.destination import ReplayOutcome, ReplayRows
from connector.sink.model.plan import BatchPlan


@attrs.frozen
class OpenSearchReplay:
    """Documents have their versions: one that is replayed twice is the same, and a newer one in the index stays."""

    indexes: OpenSearchIndexes

    def find_replayed(self, name: str) -> set[str]:  # noqa: ARG002 - nothing is kept
        """Return none: the mark in the dead letter topic is enough."""
        return set()

    def replay(self, plan: BatchPlan, index: int, name: str, parts: ReplayRows) -> ReplayOutcome:  # noqa: ARG002 - the plan knows it
        """Send documents, and wait for what the index says of each. Raises as `Bulk.send`."""
        # No later record is about its key, so a delete need not be remembered.
        writers = OpenSearchTaskWriter(attrs.evolve(self.indexes.writers(), memory=None), plan, plan.label)
        table = plan.tables[index]
        if not table.upsert:
            for part, _ in parts:
                list(writers.append(table, part))
        else:
            folded = fill_in_batch(fold([part for part, _ in parts], table.layout.keys), table.layout.keys)
            list(writers.upsert(table, folded, ()))
        writers.finish()
        letters = {tag: one for part, ids in parts for tag, one in zip(record_ids(part).tolist(), ids, strict=True)}
        dead = {letters[tag]: reason for tag, reason in writers.dead.items()}
        return ReplayOutcome(frozenset(letters[tag] for tag in writers.stale), dead)
