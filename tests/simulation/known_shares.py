"""A task's input -> its outputs: worked out once, and handed out again where plan and input are the same.

Histories of one script read the same records again and again, mostly under plans that differ in nothing that a task
sees. A map task sees neither the batch's label, the table's id, the store, the bounds of its keys, nor how rows are
looked for; a reduce task sees the last two as well, and its files are written each time (`known_folds`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import attrs

from connector.iceberg.catalog.table_layout import DEFAULT_FORMAT_PROPERTY, TableLayout
from connector.iceberg.commit.snapshot_expiry import EXPIRE_SNAPSHOTS_PROPERTY
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.write.table_writer import OpenFile
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.destinations.iceberg.write.table_writer import IcebergWriterFactory
from connector.sink.model.destination import WriterFactory
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import TaskOutput
from tests.simulation.answers import Answers, as_question
from tests.simulation.known_folds import FoldInput, fold_once
from tests.simulation.store import MemoryFiles
from tests.unit.local_job import LocalJob

SHARES, PARTS = Answers(), Answers()


class KnownJob(LocalJob):
    """Runs jobs; of tables that only get appends map tasks write files, so they are done each time."""

    def map_share(self, plan: BatchPlan, writers: WriterFactory, share: int) -> Iterable[TaskOutput]:
        """Return what a map task told, or run it."""
        if not all(table.upsert for table in plan.tables):
            return super().map_share(plan, writers, share)
        ranges = plan.feed.shares[share]
        runs = [self.records[one.topic, one.partition] for one in ranges]
        places = tuple((id(run), one.start, one.end) for run, one in zip(runs, ranges, strict=True))
        starts = {(one.topic, one.partition): one.start for one in ranges}
        seen = describe_plan(plan), tuple(_as_mapped(table, starts) for table in plan.tables)
        whole = super().map_share
        return SHARES.of((places, type(writers), seen), lambda: tuple(whole(plan, writers, share)), *runs)

    def reduce(
        self, outputs: Sequence[TaskOutput], plan: BatchPlan, writers: WriterFactory, *, judged: bool = False
    ) -> Iterable[TaskOutput]:
        """Return what reduce tasks told, with files of its own, or run them."""
        whole = super().reduce
        known = isinstance(writers, IcebergWriterFactory) and isinstance(writers.files, MemoryFiles)
        if not known or not all(table.upsert for table in plan.tables):
            return whole(outputs, plan, writers, judged=judged)
        memory = writers.memory and (writers.memory.connector, _describe_layout(writers.memory.layout))
        seen = describe_plan(plan), tuple(map(describe_table, plan.tables)), memory, writers.follows_keys, judged

        def run(given: Sequence[TaskOutput], files: OpenFile) -> Iterable[TaskOutput]:
            return whole(given, plan, attrs.evolve(writers, files=files), judged=judged)

        return fold_once(FoldInput(outputs, seen, run), writers.files.store)


def describe_plan(plan: BatchPlan) -> Hashable:
    """All that a task sees of a plan but for its tables and what it reads."""
    events = PARTS.of(id(plan.events), lambda: pickle.dumps(plan.events), plan.events)
    return events, as_question(_PLAN(plan))


def _describe_layout(layout: RowLayout, *, mapped: bool = True) -> bytes:
    return PARTS.of((id(layout), mapped), lambda: pickle.dumps(_without_place(layout, mapped=mapped)), layout)


def _without_place(layout: RowLayout, *, mapped: bool) -> RowLayout:
    """A layout without what tells the table from another of its kind."""
    if not isinstance(layout, TableLayout):
        return layout
    kept = (DEFAULT_FORMAT_PROPERTY, EXPIRE_SNAPSHOTS_PROPERTY) if mapped else ""
    told = {name: value for name, value in layout.properties.items() if name.startswith(kept)}
    return attrs.evolve(layout, uuid="", io_properties={}, properties=told)


def _as_mapped(table: TablePlan, starts: Mapping[TopicPartition, int]) -> Hashable:
    """What map tasks of a share look at of a table's plan."""
    committed = tuple((at, end) for at, end in table.committed.items() if end > starts.get(at, end))
    after_delete = tuple((at, end) for at, end in table.after_delete.items() if at in starts)
    layout = _describe_layout(table.layout)
    return table.base is None, committed, after_delete, layout, as_question(_MAPPED(table))


def describe_table(table: TablePlan) -> Hashable:
    """What all other tasks look at of a table's plan."""
    return table.base is None, _describe_layout(table.layout, mapped=False), as_question(_REDUCED(table))


def _all_but(kind: type[attrs.AttrsInstance], *names: str) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of a class's fields but for some."""
    return attrgetter(*(field.name for field in attrs.fields(kind) if field.name not in names))


_OF_SHARES = "layout", "base", "committed", "after_delete"
_PLAN = _all_but(BatchPlan, "label", "feed", "events", "tables")
_REDUCED = _all_but(TablePlan, *_OF_SHARES)
_MAPPED = _all_but(TablePlan, *_OF_SHARES, "known_keys", "write_mode", "needs_row_lookup", "row_lookup")
