"""Consumed records of one topic-partition -> what the decoder made of them, for the map task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import attrs

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import SchemaChange
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncates import Truncate
from serde.arrays import Ints
from serde.faults import RecordError


@attrs.frozen(eq=False)
class DecodedRecords:
    """Rows, shapes that tables are not ready for, and records that cannot be used (by their place among the records).

    `tables` has the table of each part, by its index in the plan; `progress` tells how far the sources came.
    """

    parts: tuple[ChangeBatch, ...] = ()
    needs: tuple[SchemaChange, ...] = ()
    faults: tuple[RecordError, ...] = ()
    truncates: tuple[Truncate, ...] = ()
    tables: tuple[int, ...] = ()
    progress: tuple[SourceProgress, ...] = ()
    metrics: TaskMetrics = attrs.field(factory=TaskMetrics)

    def count(self, events: int, size_bytes: int) -> DecodedRecords:
        """Add to the metrics what shows only when all the records are through."""
        rows, operations, newest = Counter[int](), Counter[str](), Counter[int]()
        for index, part in zip(self.tables, self.parts, strict=True):
            rows[index] += len(part)
            operations += part.order.operations
            if (latest := int(part.order.dedup.max(initial=0))) > newest[index]:
                newest[index] = latest
        counts = TaskMetrics(
            events,
            len(self.faults),
            truncates=len(self.truncates),
            rows=rows,
            size_bytes=size_bytes,
            operations=operations,
            newest=newest,
        )
        return attrs.evolve(self, metrics=self.metrics + counts)

    @staticmethod
    def merge(outcomes: Sequence[tuple[Ints, DecodedRecords]]) -> DecodedRecords:
        """Merge the outcomes of parts of some records; each comes with the places of its records among them."""
        each = [outcome for _, outcome in outcomes]
        return DecodedRecords(
            parts=tuple(part for one in each for part in one.parts),
            needs=tuple(need for one in each for need in one.needs),
            faults=tuple(attrs.evolve(f, row=int(places[f.row])) for places, one in outcomes for f in one.faults),
            truncates=tuple(truncate for one in each for truncate in one.truncates),
            tables=tuple(table for one in each for table in one.tables),
            progress=tuple(progress for one in each for progress in one.progress),
            metrics=sum((one.metrics for one in each), TaskMetrics()),
        )


def keep_first_per_row(faults: Iterable[RecordError]) -> Iterator[RecordError]:
    """Yield one fault of each record, the first: a record is one dead letter."""
    rows: set[int] = set()
    for fault in faults:
        if fault.row not in rows:
            rows.add(fault.row)
            yield fault
