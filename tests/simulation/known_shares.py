"""A map task's share -> its outputs: worked out once, and handed out again where plan and records are the same.

Histories of one script read the same records again and again, mostly under plans that differ in nothing that a map task
sees: not in the batch's label, the table's id, the store, the bounds of its keys, or how rows are looked for.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from connector.iceberg.catalog.table_layout import DEFAULT_FORMAT_PROPERTY, TableLayout
from connector.iceberg.commit.snapshot_expiry import EXPIRE_SNAPSHOTS_PROPERTY
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.runtime.topic_partitions import TopicPartition
from connector.settings.iceberg.row_lookup import RowLookupSettings
from connector.sink.model.destination import WriterFactory
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.task_output import TaskOutput
from tests.simulation.answers import Answers
from tests.unit.local_job import LocalJob

SHARES = Answers()
_NO_FEED: Any = None
_NO_BOUNDS, _NO_LOOKUP = KeyBounds(), RowLookupSettings()


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
        tables = tuple(_as_mapped(table, starts) for table in plan.tables)
        seen = pickle.dumps(attrs.evolve(plan, label="", feed=_NO_FEED, tables=tables))
        whole = super().map_share
        return SHARES.of((places, type(writers), seen), lambda: tuple(whole(plan, writers, share)), *runs)


def _as_mapped(table: TablePlan, starts: Mapping[TopicPartition, int]) -> TablePlan:
    """The plan of a table, as far as map tasks of a share look at it."""
    layout = table.layout
    if isinstance(layout, TableLayout):
        kept = (DEFAULT_FORMAT_PROPERTY, EXPIRE_SNAPSHOTS_PROPERTY)
        told = {name: value for name, value in layout.properties.items() if name.startswith(kept)}
        layout = attrs.evolve(layout, uuid="", io_properties={}, properties=told)
    return attrs.evolve(
        table,
        base=None if table.base is None else 0,
        layout=layout,
        known_keys=_NO_BOUNDS,
        committed={at: end for at, end in table.committed.items() if end > starts.get(at, end)},
        after_delete={at: end for at, end in table.after_delete.items() if at in starts},
        write_mode="",
        needs_row_lookup=False,
        row_lookup=_NO_LOOKUP,
    )
