"""Events of one task -> documents of their own, each named by where its record stands. Runs on executors."""

from __future__ import annotations

from functools import cached_property

import attrs
import numpy as np
import pyarrow as pa

from connector.opensearch.bulk.actions import ROWS_PER_STEP, WriteOptions
from connector.opensearch.documents.document_ids import build_record_ids
from connector.opensearch.documents.json_values import to_json_texts
from connector.opensearch.indexes.index_templates import TIMESTAMP_FIELD
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.destinations.opensearch.write.document_requests import DocumentRequests, to_texts
from connector.sink.destinations.opensearch.write.timestamps import TimestampRule
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import BatchPlan, TablePlan


@attrs.frozen(eq=False)
class EventDocuments:
    """Indexes events."""

    requests: DocumentRequests
    plan: BatchPlan

    def add(self, part: ChangeBatch, table: TablePlan) -> None:
        """Index every event of a part, by its time where the index needs one."""
        target = self.requests.target(table)
        if target.dating is None:
            self._add(target.style, part, table)
        else:
            self._add_dated(target.dating, part, table)

    def _add(self, style: WriteOptions, part: ChangeBatch, table: TablePlan) -> None:
        self.requests.index_rows(style, part, self._place_ids(part), None, table)

    def _add_dated(self, dating: TimestampRule, part: ChangeBatch, table: TablePlan) -> None:
        times, style = dating.times(part, self.plan.dedup_column), self.requests.target(table).style
        if times.null_count:
            for tag in part.order.records[np.asarray(times.is_null())].tolist():
                self.requests.refuse(tag, "the event has no time, and its index needs one")
            at = np.flatnonzero(times.is_valid())
            part, times = part.take(at), times.take(pa.array(at))
        if dating.pattern is None:
            for start in range(0, len(part), ROWS_PER_STEP):
                own = part.take(np.arange(start, min(start + ROWS_PER_STEP, len(part))))
                stamps = to_json_texts(times.slice(start, ROWS_PER_STEP))
                texts = {**to_texts(own), TIMESTAMP_FIELD: stamps}
                self.requests.index_texts(style, texts, own, self._place_ids(own), None, table)
            return
        names = dating.pattern.indexes(style.index, times).dictionary_encode()
        for code, name in enumerate(names.dictionary.to_pylist()):
            own = part.take(np.flatnonzero(np.asarray(names.indices) == code))
            self._add(attrs.evolve(style, index=name), own, table)

    def _place_ids(self, part: ChangeBatch) -> pa.StringArray:
        topic, partition = self._places[int(part.order.partition[0])]
        return build_record_ids(topic, partition, pa.array(part.order.offset))

    @cached_property
    def _places(self) -> dict[int, TopicPartition]:
        return {rank: at for at, rank in self.plan.ranks.items()}
