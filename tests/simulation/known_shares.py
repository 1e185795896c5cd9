"""A map task's share -> its outputs: worked out once, and handed out again where plan and records are the same.

Histories of one script read the same records again and again, mostly under plans that differ in nothing that a map task
sees: not in the batch's label, the table's id, the store, the bounds of its keys, or how rows are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import attrs

from connector.iceberg.catalog.retention_properties import EXPIRE_SNAPSHOTS_PROPERTY
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import EventSettings
from connector.settings.iceberg.new_tables.file_formats import DEFAULT_FORMAT_PROPERTY
from connector.sink.model.destination import WriterFactory
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import TaskOutput
from serde.connect.text_columns import WITH_NANOSECONDS
from tests.simulation.answers import Answers, as_question
from tests.unit.local_job import LocalJob

SHARES, EVENTS = Answers(), Answers()


class KnownJob(LocalJob):
    """Runs jobs; of tables that only get appends map tasks write files, so they are done each time."""

    def map_share(self, plan: BatchPlan, writers: WriterFactory, share: int) -> Iterable[TaskOutput]:
        """Return what a map task told, or run it."""
        if not all(table.upsert for table in plan.tables):
            return super().map_share(plan, writers, share)
        ranges = plan.assignment.shares[share]
        runs = [self.records[one.topic, one.partition] for one in ranges]
        places = tuple((id(run), one.start, one.end) for run, one in zip(runs, ranges, strict=True))
        starts = {(one.topic, one.partition): one.start for one in ranges}
        seen = _describe(plan), tuple(_as_mapped(table, starts) for table in plan.tables)
        whole = super().map_share
        return SHARES.of((places, type(writers), seen), lambda: tuple(whole(plan, writers, share)), *runs)


def _describe(plan: BatchPlan) -> Hashable:
    """All that a task sees of a plan but for its tables and what it reads."""
    return _seen_events(plan.events), as_question(_PLAN(plan))


def _seen_events(events: EventSettings) -> EventSettings:
    """How events are read: nanoseconds are told of in schemas, which no message here has."""
    return EVENTS.of(
        events, lambda: attrs.evolve(events, temporal_as_text=events.temporal_as_text - {WITH_NANOSECONDS})
    )


def _describe_layout(layout: RowLayout) -> Hashable:
    """A layout without what tells the table from another of its kind."""
    if not isinstance(layout, TableLayout):
        return as_question(layout)
    kept = DEFAULT_FORMAT_PROPERTY, EXPIRE_SNAPSHOTS_PROPERTY
    return _LAYOUT(layout), tuple([one for one in layout.properties.items() if one[0].startswith(kept)])


def _as_mapped(table: TablePlan, starts: Mapping[TopicPartition, int]) -> Hashable:
    """What map tasks of a share look at of a table's plan."""
    committed = tuple((at, end) for at, end in table.committed.items() if end > starts.get(at, end))
    after_delete = tuple((at, end) for at, end in table.after_delete.items() if at in starts)
    layout = _describe_layout(table.layout)
    return table.base is None, committed, after_delete, layout, as_question(_MAPPED(table))


def _all_but(kind: type[attrs.AttrsInstance], *names: str) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of a class's fields but for some."""
    return attrgetter(*(field.name for field in attrs.fields(kind) if field.name not in names))


_SEEN_OTHERWISE = "layout", "base", "committed", "after_delete"
_LAYOUT = _all_but(TableLayout, "uuid", "io_properties", "properties")
_PLAN = _all_but(BatchPlan, "label", "assignment", "events", "tables")
_MAPPED = _all_but(TablePlan, *_SEEN_OTHERWISE, "known_keys", "write_mode", "needs_row_lookup", "row_lookup")
