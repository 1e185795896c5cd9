"""A finished job's documents -> acknowledged: they are in their indexes already. On the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import attrs
import numpy as np
import pyarrow as pa
import structlog
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.bulk.delete_older import OlderDocuments, delete_older
from connector.opensearch.bulk.item_results import apply_policy
from connector.runtime.spark.task_errors import raise_task_errors
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.sink.convert.change_order import DEDUP_UNITS_NS
from connector.sink.destinations.opensearch.deleted_documents import discard_deleted_keys, remember_deleted_keys
from connector.sink.destinations.opensearch.indexes import OpenSearchIndexes
from connector.sink.destinations.table_position import build_table_position
from connector.sink.fold.document_versions import derive_versions
from connector.sink.model.destination import TableCommit
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.truncate_scope import TruncateScope
from connector.sink.model.truncates import TableTruncate
from serde.events.positions.log_positions import NO_VALUE

_SECOND_NS = 1_000_000_000
_ANY_VERSION = int(np.iinfo(np.int64).max)


class OpenSearchCommitter:
    """Commits batches to the indexes of one sink."""

    def __init__(self, spark: SparkSession, indices: OpenSearchIndexes, search: OpenSearchSettings) -> None:
        """Commit to these."""
        self.spark, self._indices, self._search = spark, indices, search
        self._log = structlog.get_logger()

    def commit(
        self, plan: BatchPlan, names: list[str], result: JobResult, position: KafkaOffsets
    ) -> dict[str, TableCommit]:
        """Say so: every item is settled when a job is through.

        Raises:
            RetriableError: an index left its alias meanwhile; the batch has to be sent again.
            GapError: an index was deleted.
            FatalError: a record without value, a refused document or an older change, where the settings say fail.
        """
        if result.metrics.tombstones and self._search.null_values == "fail":
            raise FatalError(
                f"{result.metrics.tombstones} records have no value, and behavior.on.null.values is fail; set it to "
                "delete or ignore, or let Debezium send no tombstones (tombstones.on.delete=false)"
            )
        remember_deleted_keys(self._indices.deleted_keys, result)
        commits = {}
        for table in plan.tables:
            come, committed = (
                build_table_position(plan, table, result.progress, position),
                result.written.get(table.index),
            )
            if committed is None and not come.dated:
                continue
            counts, name = Counter[str](), names[table.index]
            for each in committed or ():
                counts.update(each)
            # All that is known of the index is stored, not only what this batch adds: the next start has no other.
            stands = self._indices.position(name).advance(come)
            commits[name] = TableCommit(self._indices.label(name), stands, dict(counts))
        ids = self._indices.confirm_indexes(commits)
        self._judge(commits)
        for name, one in commits.items():
            self._indices.record_position(name, one.position)
        return {name: attrs.evolve(one, uuid=ids[name]) for name, one in commits.items()}

    def truncate(self, plan: BatchPlan, names: list[str], scopes: Mapping[int, TruncateScope]) -> None:
        """Empty the indexes that were truncated, before what came after that is sent again."""
        for index, scope in scopes.items():
            for cut, rows in scope.emptied:
                self._empty(plan.tables[index], names[index], cut, rows.values, plan.dedup_column)

    def discard(self, names: list[str], result: JobResult) -> None:  # noqa: ARG002 - files have one table
        """Leave the documents: the next run of the job writes the same ones, or newer; files of deleted keys go."""
        discard_deleted_keys(self._indices.deleted_keys, result)

    def close(self) -> None:
        """Do nothing: there are no threads."""

    def _judge(self, commits: dict[str, TableCommit]) -> None:
        rules = {
            "malformed": (self._search.malformed, "the index refuses documents"),
            "stale": (self._search.conflict, "the index holds newer versions"),
        }
        for problem, (rule, text) in rules.items():
            count = sum(one.counts.get(problem, 0) for one in commits.values())
            fault = f"{text} of {count} changes, and the settings say fail; nothing is acknowledged"
            apply_policy(rule, count, fault, text)

    def _empty(
        self, table: TablePlan, name: str, cut: TableTruncate, own: Sequence[tuple[str, str]], dedup_column: str
    ) -> None:
        """Delete the documents up to a truncate, by executors: by its time, and what its own partition had before.

        Where `own` has fields with values only documents that have them.
        """
        # Other columns are refused beside truncate.enabled: nothing would tell what came before.
        target, unit = self._indices.target(name), DEDUP_UNITS_NS.get(dedup_column, 1)
        if target.versions == "offset" or cut.ts_ns == NO_VALUE:
            version = most = max(cut.offsets.values())
        else:
            version = int(
                derive_versions(*np.array([[cut.ts_ns // unit], [cut.total_order]]), nanoseconds=unit == 1)[0]
            )
            last = table.find_last_truncate(cut.source)
            # Of one that comes again the same topic-partition has what is later than it.
            parts = () if cut.comes_again(last) else cut.offsets
            before = (mark.version for at in parts for mark in table.watermarks.get(at, {}).values())
            most = max((version, *before))
            if cut.alone and cut.deletes_until(last.place) is None:
                # All there is came before, by Kafka's order, or is sent again: dates of statements go to and fro.
                most = _ANY_VERSION
            if cut.ts_ns % _SECOND_NS == 0:
                # Changes after it may have smaller dates, and their versions with them.
                version = 0
        slices = self.spark.sparkContext.defaultParallelism
        # Documents go by versions here even where they are only added to.
        style = attrs.evolve(target.style, partial=False)
        older = OlderDocuments(version, most, dict(own))
        task = partial(_delete_documents, search=self._search, style=style, older=older, slices=slices)
        with raise_task_errors():
            rows = self.spark.range(0, slices, 1, slices).mapInArrow(task, "deleted long").collect()
        count = sum(row.deleted for row in rows)
        self._log.info("index emptied by a truncate at its source", index=self._indices.label(name), documents=count)


def _delete_documents(
    batches: Iterator[pa.RecordBatch],
    search: OpenSearchSettings,
    style: WriteOptions,
    older: OlderDocuments,
    slices: int,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        counts = [
            delete_older(search.connection, search.bulk, style, older, place, slices)
            for place in batch.column(0).to_pylist()
        ]
        yield pa.RecordBatch.from_pydict({"deleted": pa.array(counts, pa.int64())})
