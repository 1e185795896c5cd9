"""A process of the sink: the product's own parts, put together over ports in memory."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import attrs
import numpy as np
import pyarrow as pa
import stamina
import structlog

from connector.errors import FatalError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.commit.commit_attempts import commit_exactly_once
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.kafka.dlq.rejected_records import RecordCoordinates, record_coordinates
from connector.runtime.monitoring.listeners import BatchReport
from connector.runtime.retry import call_with_retries
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings, load
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.sink.destinations.iceberg.back_pressure import BackPressure
from connector.sink.destinations.iceberg.committer import IcebergCommitter
from connector.sink.destinations.iceberg.destination import IcebergDestination
from connector.sink.destinations.iceberg.lookups.truncated_rows import TruncatedRows
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.destinations.iceberg.write.table_writer import IcebergWriterFactory
from connector.sink.factory import begin_batches
from connector.sink.job import map_task, reduce_task
from connector.sink.microbatch.cluster import inspect_cluster
from connector.sink.microbatch.ports import SinkPorts
from connector.sink.microbatch.start_offsets import check_appeared
from connector.sink.model.destination import Lookups, WriterFactory
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult, KeyLookup
from tests.simulation.broker import Broker, SimulatedCluster
from tests.simulation.catalog_server import CatalogServer
from tests.simulation.interruptions import Interruptions, broker_away
from tests.simulation.known_shares import KnownJob
from tests.simulation.lookups import MemoryLateEventLookup
from tests.simulation.missing_values import MemoryMissingValueLookup, write_marked_rows
from tests.simulation.replacements import replaced
from tests.simulation.row_search import find_rows, searches_in_memory
from tests.simulation.search_cluster import search_in_memory
from tests.simulation.search_destination import SimulatedIndexes, open_indexes
from tests.simulation.source import Truth
from tests.simulation.store import STORES, MemoryFiles
from tests.simulation.tables import NoRewritesGuard, SimulatedCatalog, SimulatedDeletedKeys, offsets_in_memory

S = TypeVar("S")
NAME = "simulated"
RETRY_ATTEMPTS = 4


@attrs.frozen
class Letter:
    """A dead letter: where its record is, and why it is one."""

    place: RecordCoordinates
    reason: str


@attrs.define(eq=False)
class Surroundings:
    """What all processes share; `group` are the consumer group's offsets, `repeated` places of dead letters that came
    once more though the broker had acknowledged them, in the same batch.
    """

    number: int
    broker: Broker
    server: CatalogServer
    calls: Interruptions
    letters: list[Letter] = attrs.field(factory=list)
    repeated: list[RecordCoordinates] = attrs.field(factory=list)
    group: dict[TopicPartition, int] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Process:
    """One run of the sink; `reads` is all that it has read, by place. `has_rival` once another run wrote beside it.
    `through` is where its last batch ended that went through.
    """

    around: Surroundings
    settings: SinkSettings
    parallelism: int
    reads: dict[TopicPartition, dict[int, Truth]] = attrs.field(factory=dict)
    at: dict[TopicPartition, int] = attrs.field(factory=dict)
    batches: Any = None
    count: int = 0
    has_rival: bool = False
    through: dict[TopicPartition, int] = attrs.field(factory=dict)

    def start(self) -> None:
        """Come up to where the first batch begins; raises as the product does."""
        around, settings = self.around, self.settings
        cluster = SimulatedCluster(around.broker, around.calls)
        seen = call_with_retries(lambda: inspect_cluster(cluster), settings.errors)
        catalog = SimulatedCatalog(around.server, around.calls, settings.errors, self.tell)
        offsets = call_with_retries(
            lambda: OffsetsTable(catalog, settings.table.offsets_table, settings.name), settings.errors
        )
        destination = call_with_retries(
            lambda: _open_destination(settings, catalog, offsets, seen.topics, around), settings.errors
        )
        ports = SinkPorts(
            SimulatedJob(self),
            destination,
            offsets,
            cluster,
            _Letters(self),
            _Group(around),  # type: ignore[arg-type]
        )
        self.batches, _ = begin_batches(settings, ports, seen)
        self.at = dict(self.batches.position.offsets)

    def tell(self) -> CommitOrigin:
        """Who commits, and what it has read so far."""
        return CommitOrigin(self, {at: dict(known) for at, known in self.reads.items()})

    def discover(self) -> None:
        """Look for topic-partitions that have appeared (`microbatch.partition_discovery`)."""
        cluster = SimulatedCluster(self.around.broker, self.around.calls)
        fresh = [at for at in self.around.broker.partitions() if at not in self.at]
        if fresh:
            found = call_with_retries(lambda: cluster.fetch_beginning_offsets(fresh), self.settings.errors)
            check_appeared(attrs.evolve(self.batches.position, offsets=self.at), found)
            self.at |= found

    def process(self, end: Mapping[TopicPartition, int]) -> BatchReport:
        """Bring in one batch, up to these offsets."""
        report: BatchReport = self.batches.process(MicroBatch(self.count, dict(self.at), {**self.at, **end}))
        self.count += 1
        self.at |= report.end
        return report


@attrs.frozen(eq=False)
class CommitOrigin:
    """On whose behalf something is committed, and what that run had read by then."""

    process: Process
    reads: Mapping[TopicPartition, Mapping[int, Truth]]


def _open_destination(
    settings: SinkSettings, catalog: SimulatedCatalog, offsets: OffsetsTable, topics: Any, around: Surroundings
) -> SimulatedDestination | SimulatedIndexes:
    deleted = None
    if settings.table.upsert and not settings.table.keep_deletes:
        kept = settings.table.deleted_keys
        deleted = SimulatedDeletedKeys(None, catalog, kept.table, settings.name, kept.retention)  # type: ignore[arg-type]
    if isinstance(settings.destination, OpenSearchSettings):
        return open_indexes(settings, offsets, topics, deleted)
    tables = IcebergTables(settings, catalog, offsets.tables, deleted, NoRewritesGuard(settings.name))
    loaded = [tables[name] for name in tables.find_existing(topics)]
    committer = SimulatedCommitter(None, tables, settings.name)  # type: ignore[arg-type]
    limits = BackPressure(tables, settings.table.back_pressure)
    stands = {target.table.name: target.stored.position for target in loaded}
    return SimulatedDestination(tables, committer, stands, limits, around=around)


class SimulatedCommitter(IcebergCommitter):
    """Commits; rows of a truncate go, and rows are looked for, without Spark."""

    def _search_rows(
        self, table: Any, plan: TablePlan, asked: KeyLookup
    ) -> tuple[RowsToReplace | None, list[FileDescription]]:
        try:
            return find_rows(table, plan, asked, table.java.server.store)
        except FileNotFoundError as gone:
            raise FatalError(f"a task failed: a file is gone while it is needed: {gone}") from gone

    def _delete_rows(self, target: Any, until: tuple[str, int] | None, own: Sequence[tuple[str, str]]) -> None:
        table, rule = target.table, self._expect_own(target)

        def gone(row: dict[str, Any]) -> bool:
            late = until is not None and row[until[0]] is not None and row[until[0]] > until[1]
            return not late and all(row[column] == value for column, value in own)

        table.refresh()
        if table.snapshot_id is None:
            return
        made = f"truncate-{table.java.server.next_id()}"
        commit_exactly_once(
            table,
            made,
            lambda: table.java.newDelete().set(CREATED_BY, self._connector).deleteFromRowFilter(gone),
            rule,
        )

    def _write_marked_rows(self, table: Any, plan: TablePlan, which: TruncatedRows, kept: ExitStack) -> JobResult:
        return write_marked_rows(table.java, plan, which)


@attrs.frozen(eq=False)
class SimulatedDestination(IcebergDestination):
    """Tables of the simulated catalog."""

    around: Surroundings = attrs.field(kw_only=True)

    def writers(self) -> IcebergWriterFactory:
        return attrs.evolve(self.tables.writers(), files=MemoryFiles(self.around.number))

    def lookups(self, names: Sequence[str], plan: BatchPlan) -> Lookups:
        deleted: Any = self.tables.deleted_keys
        java = [table.java for table in self.tables.tables(names)]
        calls = self.around.calls
        missing = MemoryMissingValueLookup(java, calls, plan.dedup_column, plan.op_field, plan.events.add_fields_prefix)
        return Lookups(MemoryLateEventLookup(plan, java, deleted, calls), (missing,))  # type: ignore[arg-type]


@attrs.frozen(eq=False)
class SimulatedJob:
    """Jobs over what the broker has when they run."""

    process: Process

    @property
    def parallelism(self) -> int:
        return self.process.parallelism

    def run(self, plan: BatchPlan, writers: WriterFactory, lookups: Lookups | None = None) -> JobResult:
        around, own = self.process.around, self.process.reads
        records = {}
        for wanted in (one for share in plan.assignment.shares for one in share):
            at = (wanted.topic, wanted.partition)
            run = around.calls.call(
                f"fetch {at[0]}-{at[1]}",
                lambda at=at, wanted=wanted: around.broker.read(at, wanted.start, wanted.end),
                broker_away,
            )
            records[at] = run if at not in records else _joined(records[at], run)
            known = own.setdefault(at, {})
            for offset in range(wanted.start, wanted.end):
                known.pop(offset, None)
            known |= around.broker.topics[at[0]].truths(at[1], wanted.start, wanted.end)
        # Where one task does all, nothing has to travel.
        return KnownJob(records, self.parallelism, travels=self.parallelism > 1).run(plan, writers, lookups)


def _joined(one: Any, other: Any) -> Any:
    return attrs.evolve(
        one,
        offset=np.concatenate([one.offset, other.offset]),
        key=pa.concat_arrays([one.key, other.key]),
        value=pa.concat_arrays([one.value, other.value]),
        headers={name: pa.concat_arrays([own, other.headers[name]]) for name, own in one.headers.items()},
    )


@attrs.frozen
class _Letters:
    process: Process
    acknowledged: Counter[tuple[int, RecordCoordinates]] = attrs.field(factory=Counter)

    def write(self, letters: Sequence[Any], topic_ids: Mapping[str, str]) -> None:
        around, made = self.process.around, [Letter(record_coordinates(one), one.reason) for one in letters]
        if made:
            around.calls.send("write dead letters", lambda: around.letters.extend(made))
            self.acknowledged.update((self.process.count, letter.place) for letter in made)
            around.repeated += [place for (_, place), times in self.acknowledged.items() if times > 1]


@attrs.frozen
class _Group:
    around: Surroundings

    def commit_offsets(self, end: Mapping[TopicPartition, int]) -> str | None:
        try:
            self.around.calls.send("commit the group's offsets", lambda: self.around.group.update(end))
        except Exception as error:  # noqa: BLE001 - as the product: they are for lag tools only
            return str(error)
        return None

    def close(self) -> None:
        pass


# --- settings, threads and waits -------------------------------------------------------------------------------------


def settings_of(properties: tuple[str, ...], folder: str) -> SinkSettings:
    """Read a sink's settings."""
    return read_settings(load, properties, folder)


@lru_cache(maxsize=4096)
def read_settings(read: Callable[..., S], properties: tuple[str, ...], folder: str) -> S:
    """Read settings; the same ones are read once."""
    file = Path(folder) / f"{abs(hash(properties))}-{os.getpid()}.properties"
    file.write_text("\n".join(properties) + "\n")
    return read([file], environ={})


class InlineExecutor:
    """Runs what is submitted at once, in this thread."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> InlineExecutor:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def submit(self, call: Any, *values: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*values))
        except Exception as error:  # noqa: BLE001 - the future's
            future.set_exception(error)
        return future

    def map(self, call: Any, values: Any) -> list[Any]:
        return [call(value) for value in values]

    def shutdown(self, **_: Any) -> None:
        pass


class LazyExecutor(InlineExecutor):
    """Runs what is submitted when its result is asked for: as late as it can be."""

    def submit(self, call: Any, *values: Any) -> Any:
        return _Lazy(call, values)


@attrs.frozen
class _Lazy:
    call: Any
    values: tuple[Any, ...]

    def result(self) -> Any:
        return self.call(*self.values)


_ONE_THREAD = (
    (time, "sleep", lambda _: None),
    # No task ends a process of Spark's here.
    (map_task, "forget_archives", lambda: None),
    (reduce_task, "forget_archives", lambda: None),
    ("connector.sink.destinations.iceberg.committer", "ThreadPoolExecutor", InlineExecutor),
    ("connector.opensearch.bulk.bulk_processor", "ThreadPoolExecutor", InlineExecutor),
    ("connector.sink.destinations.table_registry", "ThreadPoolExecutor", InlineExecutor),
    ("connector.sink.microbatch.background_cleanup", "ThreadPoolExecutor", InlineExecutor),
)


@contextmanager
def one_thread(*, lazy: bool) -> Iterator[None]:
    """Have threads take turns in the order in which they were asked for, and no wait last; `lazy`: offsets are saved
    once they are asked for, which is behind the next batch's commits.
    """
    later = LazyExecutor if lazy else InlineExecutor
    with ExitStack() as until:
        until.enter_context(stamina.set_testing(True, attempts=RETRY_ATTEMPTS))
        until.enter_context(searches_in_memory())
        until.enter_context(search_in_memory())
        until.enter_context(offsets_in_memory())
        until.enter_context(
            replaced((*_ONE_THREAD, ("connector.sink.microbatch.processor", "ThreadPoolExecutor", later)))
        )
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing, as a history says what it did; let Arrow use this thread only, which is faster for few rows, and
    look for garbage seldom, and not in what was imported.
    """
    threads, garbage = pa.cpu_count(), gc.get_threshold()
    before = structlog.get_config()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(threads)
        gc.set_threshold(*garbage)
        gc.unfreeze()
        structlog.configure(**before)


__all__ = ["STORES", "Process", "Surroundings", "one_thread", "quiet", "read_settings", "settings_of"]
