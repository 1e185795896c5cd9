"""A batch's end offsets -> those of one table's commit, with how far its sources came and their last truncates."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.sink.fold.grown_topics import track_grown_topics
from connector.sink.fold.watermarks import advance_watermarks
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import SourceProgress


def build_table_position(
    plan: BatchPlan, table: TablePlan, progress: Iterable[SourceProgress], position: KafkaOffsets
) -> KafkaOffsets:
    """Return what of the batch's end position a table's commit says, and how far its sources came with it."""
    topics = plan.topics_by_table.get(table.index, frozenset())
    if plan.routing is not None:
        # Any topic may have events for any table.
        topics = frozenset(topic for topic, _ in plan.ranks)
    own = [one for one in progress if one.table == table.index]
    ends = {one.at: one.after_delete for one in own if one.after_delete == position.offsets.get(one.at)}
    here = position.only(topics)
    marks = advance_watermarks(table.watermarks, own)
    known = {**table.watermarks, **marks}
    marks = {**marks, **track_grown_topics(known, table.partitions, here, plan.log_ends)}
    truncates = {cut.source: cut.last for cut, _ in table.truncated.emptied}
    return attrs.evolve(here, watermarks=marks, after_delete=ends, truncates=truncates)
