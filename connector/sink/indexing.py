"""A finished job's documents -> acknowledged: they are in their indexes already. On the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import attrs
import orjson
import pyarrow as pa
import structlog
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.position import Position
from connector.opensearch.actions import Style
from connector.opensearch.emptying import emptied
from connector.opensearch.outcomes import judge
from connector.settings.search import SearchSettings
from connector.sink.documents import LATE, Documents, DocumentWriters
from connector.sink.fold import NONE
from connector.sink.indices import Indices
from connector.sink.jobs import Result
from connector.sink.landing import Landed
from connector.sink.plan import BatchPlan
from connector.sink.rows import UNITS_NS
from connector.sink.truncates import Cut
from connector.task_errors import of_tasks


class Indexing:
    """Lands batches in the indexes of one sink."""

    def __init__(self, spark: SparkSession, indices: Indices, search: SearchSettings) -> None:
        """Land in these."""
        self._spark, self._indices, self._search = spark, indices, search
        self._log = structlog.get_logger()

    def land(self, plan: BatchPlan, names: list[str], result: Result, position: Position) -> dict[str, Landed]:
        """Empty the indexes that were truncated; every item is settled when a job is through, so say so.

        Raises:
            RetriableError: an index left its alias meanwhile; the batch has to be sent again.
            GapError: an index was deleted.
            FatalError: a record without value, a refused document or an older change, where the settings say fail.
        """
        if result.tally.tombstones and self._search.null_values == "fail":
            raise FatalError(f"{result.tally.tombstones} records have no value, and behavior.on.null.values is fail")
        for table in plan.tables:
            if table.cut is not None:
                self._empty(table.cut, (), names[table.index], plan.dedup_column)
            for cut, rows in table.cuts.of_sources.values():
                self._empty(cut, rows.values, names[table.index], plan.dedup_column)
        late = {i: [x for x in told if x.startswith(LATE)] for i, told in result.files.items()}
        self._complete(plan, {index: payloads for index, payloads in late.items() if payloads})
        landed = {}
        for index, told in sorted(result.files.items()):
            counts: dict[str, int] = {}
            for text in (text for text in told if not text.startswith(LATE)):
                for what, count in orjson.loads(text).items():
                    counts[what] = counts.get(what, 0) + count
            topics = sorted({t for t, i in plan.routes.items() if i == index} or {topic for topic, _ in plan.ranks})
            landed[names[index]] = Landed(self._indices.label(names[index]), position.only(topics), counts)
        ids = self._indices.stayed(landed)
        self._judge(landed)
        return {name: attrs.evolve(one, uuid=ids[name]) for name, one in landed.items()}

    def discard(self, names: list[str], result: Result) -> None:
        """Leave what a job wrote: the next run of it writes the same documents, or newer ones."""

    def _complete(self, plan: BatchPlan, late: dict[int, list[bytes]]) -> None:
        """Send what waited for other tasks' documents: few rows, of keys that changed with values left out."""
        if not late:
            return
        assert isinstance(plan.outlet, Documents)
        writers = DocumentWriters(plan.outlet, plan)
        for index, payloads in late.items():
            for payload in payloads:
                writers.late(plan.tables[index], payload)
        list(writers.close())

    def _judge(self, landed: dict[str, Landed]) -> None:
        rules = {
            "malformed": (self._search.malformed, "the index refuses documents"),
            "stale": (self._search.conflict, "the index holds newer versions"),
        }
        for what, (rule, text) in rules.items():
            count = sum(one.counts.get(what, 0) for one in landed.values())
            fault = f"{text} of {count} changes, and the settings say fail; nothing is acknowledged"
            judge(rule, count, fault, text)

    def _empty(self, cut: Cut, own: Sequence[tuple[str, str]], name: str, dedup_column: str) -> None:
        """Delete the documents from before a truncate, by executors; those of its own transaction stay.

        Where `own` has fields with values only documents that have them.
        """
        # Other columns are refused beside truncate.enabled: nothing would tell what came before.
        target, version = self._indices.target(name), cut.ts_ns // UNITS_NS.get(dedup_column, 1) - 1
        if target.versions == "offset" or cut.ts_ns == NONE:
            version = max(cut.offsets.values())
        slices = self._spark.sparkContext.defaultParallelism
        # Documents go by versions here even where they are only added to.
        style = attrs.evolve(target.style, partial=False)
        task = partial(_emptied, search=self._search, style=style, version=version, slices=slices, own=dict(own))
        with of_tasks():
            rows = self._spark.range(0, slices, 1, slices).mapInArrow(task, "deleted long").collect()
        count = sum(row.deleted for row in rows)
        self._log.info("index emptied by a truncate at its source", index=self._indices.label(name), documents=count)


def _emptied(
    batches: Iterator[pa.RecordBatch],
    search: SearchSettings,
    style: Style,
    version: int,
    slices: int,
    own: Mapping[str, str],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        counts = [
            emptied(search.connection, search.bulk, style, version, place, slices, own)
            for place in batch.column(0).to_pylist()
        ]
        yield pa.RecordBatch.from_pydict({"deleted": pa.array(counts, pa.int64())})
