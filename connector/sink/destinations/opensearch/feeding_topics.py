"""A batch's plan -> a stop where what several topics, or partitions, say of one document would go wrong in silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connector.errors import FatalError
from connector.sink.destinations.opensearch.write.document_requests import IndexTarget
from connector.sink.model.plan import BatchPlan, TablePlan


def check_feeding_topics(plan: BatchPlan, names: Sequence[str], targets: Mapping[str, IndexTarget]) -> None:
    """Look at the topics of each index whose documents have keys.

    Raises:
        FatalError: a topic got partitions, where versions are offsets; or several topics set fields of one document.
    """
    for table in plan.tables:
        target = targets.get(table.layout.name)
        if target is None or not table.upsert:
            continue
        topics = sorted(plan.topics_by_table.get(table.index, ()))
        if target.versions == "offset":
            _check_partitions(plan, table, topics, names[table.index])
        if target.style.partial and len(topics) > 1:
            raise FatalError(
                f"index {names[table.index]}: topics {', '.join(topics)} all feed it, and with "
                "index.write.method=upsert an event of one sets the fields of the others to null; give each topic an "
                "index of its own, or leave index.write.method out"
            )


def _check_partitions(plan: BatchPlan, table: TablePlan, topics: Sequence[str], name: str) -> None:
    grown = [topic for topic in topics if plan.has_grown(topic, table)]
    if grown:
        raise FatalError(
            f"index {name}: topic {', '.join(grown)} got partitions, and versions of its documents are offsets: a key "
            "that moved to a new partition counts from 0 there, so that its changes would be dropped as older ones. "
            "Write the topic and the index anew; or, to continue all the same, `icebridge offsets reset --to stored`"
        )
