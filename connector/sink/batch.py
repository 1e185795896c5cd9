"""One micro-batch, top to bottom: plan -> job -> dead letters -> commits -> offsets. On the driver.

The batch is the unit: its files become visible table by table, each in one commit with the batch's end offsets; a
batch that is replayed after a crash is filtered per table by these offsets (design, section 5).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import attrs
import orjson
import structlog
from pyspark.sql import SparkSession

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.iceberg.commit import Committed, Pending, commit
from connector.iceberg.emptying import emptied
from connector.iceberg.offsets import OffsetsTable
from connector.iceberg.position import Position, TopicPartition
from connector.kafka.cluster import Cluster, Topic
from connector.kafka.dead_letters import DeadLetters
from connector.kafka.fetch import feed
from connector.kafka.groups import Group
from connector.retry import retried
from connector.settings import SinkSettings
from connector.sink.fold import NONE
from connector.sink.jobs import Result, run, sizes
from connector.sink.limits import Limits
from connector.sink.plan import BatchPlan, Letter
from connector.sink.records import Batch
from connector.sink.routing import FieldRoutes
from connector.sink.targets import Targets
from connector.sink.truncates import Cut

MAX_ROUNDS = 8
"""A job runs again after tables were created or evolved for it; each round brings in every shape seen so far."""

COMMIT_THREADS = 8

SHOWN_LETTERS = 10
"""Dead letters per batch that the log shows one by one; all of them are in the topic."""


@attrs.frozen
class Report:
    """What became of a batch, for logs and progress; `tables` maps a table to its files.

    `nulled` values could not be converted; `drift` counts, per table and run, fields in which events and table differ.
    """

    batch: int
    events: int
    seconds: float
    tables: dict[str, Committed]
    dead_letters: int
    tombstones: int
    ignored: int
    end: Mapping[TopicPartition, int]
    position: Position
    nulled: int = 0
    drift: Mapping[str, int] = attrs.field(factory=dict)


class Batches:
    """Carries batches out for one sink, one after the other."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SinkSettings,
        targets: Targets,
        offsets: OffsetsTable,
        cluster: Cluster,
        letters: DeadLetters,
        group: Group,
        position: Position,
    ) -> None:
        """Begin at `position`."""
        self._spark = spark
        self._settings, self._targets, self._offsets = settings, targets, offsets
        self._cluster, self._letters, self._group = cluster, letters, group
        self._limits = Limits(settings.errors)
        self._parallelism = spark.sparkContext.defaultParallelism
        self._log = structlog.get_logger()
        self._beside = ThreadPoolExecutor(1, "offsets")
        self._settling: Future[None] | None = None
        self.position = position

    def process(self, batch: Batch) -> Report:
        """Bring a batch into its tables.

        Raises:
            RetriableError: broker or catalog stayed away longer than `errors.retry.timeout`; whatever was committed
                is known to be, and will be left out when the batch comes again.
            FatalError: a person has to look.
        """
        began = time.monotonic()
        position = self._end_position(batch)
        report = retried(lambda: self._attempt(batch, position), self._settings.errors)
        self.position = position
        self._settled()
        tables = {self._targets[name].table.name: done.stored.position for name, done in report.tables.items()}
        self._settling = self._beside.submit(self._settle, report, tables)
        return attrs.evolve(report, seconds=time.monotonic() - began)

    def close(self) -> None:
        """Wait until the last batch's offsets are saved, and disconnect from the cluster.

        Raises:
            RetriableError, FatalError: they could not be saved; the tables know theirs.
        """
        try:
            self._settled()
        finally:
            self._beside.shutdown()
            self._group.close()

    def _settled(self) -> None:
        """Wait for the saving of the batch before; raise what went wrong there."""
        settling, self._settling = self._settling, None
        if settling is not None:
            settling.result()

    def _settle(self, report: Report, tables: Mapping[str, Position]) -> None:
        """Save a batch's offsets, beside the next batch's job: the tables' own summaries already hold them."""
        retried(lambda: self._offsets.save(report.position, tables), self._settings.errors)
        problem = self._group.follow(report.end)
        if problem:
            self._log.warning(problem)

    def _end_position(self, batch: Batch) -> Position:
        unknown = [topic for topic in batch.topics if topic not in self.position.topic_ids]
        found: dict[str, Topic] = retried(lambda: self._cluster.topics(unknown), self._settings.errors)
        ids = {name: topic.id for name, topic in found.items()}
        return self.position.advanced(Position(self.position.cluster_id, ids, batch.end))

    def _attempt(self, batch: Batch, position: Position) -> Report:
        plan, names, result = self._run(batch)
        if result.tally.truncates and not self._settings.table.truncate:
            self._log.warning("truncates are ignored; see truncate.enabled", batch=batch.id)
        try:
            self._limits.check(len(result.letters), result.tally)
            self._letters.write(result.letters)
        except ConnectorError:
            self._discard(names, result)
            raise
        self._limits.passed(result.tally)
        self._tell(result.letters)
        self._empty(plan, names)
        done = self._commit(plan, names, result, position)
        tally = result.tally
        for index, field in tally.drift:
            self._targets.drifted(names[index], (field,))
        counts = (tally.dead, tally.tombstones, tally.ignored)
        drift = {self._targets[name].table.name: len(fields) for name, fields in self._targets.drift.items()}
        return Report(batch.id, tally.events, 0.0, done, *counts, batch.end, position, tally.nulled, drift)

    def _tell(self, letters: list[Letter]) -> None:
        for letter in letters[:SHOWN_LETTERS]:
            place = f"{letter.topic}-{letter.partition} offset {letter.offset}"
            self._log.warning("dead letter", record=place, stage=letter.stage, reason=letter.reason)

    def _empty(self, plan: BatchPlan, names: list[str]) -> None:
        """Delete what tables held before they were truncated."""
        for table in plan.tables:
            if table.cut is not None:
                target, column = self._targets[names[table.index]], plan.dedup_column
                ordered = column == "__source_ts_ns" and column in table.layout.columns.names
                until = (column, table.cut.ts_ns) if ordered and table.cut.ts_ns != NONE else None
                emptied(self._spark, plan.catalog, target.table, until)
                self._targets.refresh(names[table.index])
                self._log.info("table emptied by a truncate at its source", table=target.table.name)

    def _run(self, batch: Batch) -> tuple[BatchPlan, list[str], Result]:
        cuts: dict[str, Cut] = {}
        for _ in range(MAX_ROUNDS):
            plan, names = self.plan(batch, cuts)
            result = run(self._spark, plan, [self._targets[name].table for name in names])
            fresh = self._fresh_cuts(plan, names, result)
            if not result.needs and not result.open and not fresh:
                return plan, names, result
            cuts |= fresh
            self._discard(names, result)
            for index in result.open:
                self._targets.patch(names[index])
            self._targets.satisfy(result.needs)
        raise FatalError(f"batch {batch.id}: tables could not be made ready for its events; the log tells which")

    def _fresh_cuts(self, plan: BatchPlan, names: list[str], result: Result) -> dict[str, Cut]:
        """Give the truncates that the job did not know of."""
        if not self._settings.table.truncate:
            return {}
        found = [(plan.tables[index], truncates) for index, truncates in result.truncates.items()]
        return {names[t.index]: Cut.of(some) for t, some in found if t.mode == "upsert" and t.cut is None}

    def plan(self, batch: Batch, cuts: Mapping[str, Cut] | None = None) -> tuple[BatchPlan, list[str]]:
        """Give the plan of the next job, and the names of its tables by index."""
        routes = self._targets.find(topic for topic in batch.topics if topic not in self._targets.refused)
        names = sorted(set(routes.values())) or self._targets.routed()
        index = {name: i for i, name in enumerate(names)}
        reducers, buckets = sizes(batch.events, self._parallelism)
        tables = tuple(self._targets.plan(name, i, batch.start) for name, i in index.items())
        tables = tuple(attrs.evolve(t, cut=(cuts or {}).get(name)) for t, name in zip(tables, index, strict=True))
        rule = self._settings.table
        routing = None if rule.routes is None else FieldRoutes(rule.routes, index, dict(self._targets.refused_tables))
        return BatchPlan(
            label=f"{batch.id:06d}",
            catalog=self._settings.catalog.name,
            events=self._settings.events,
            dedup_column=rule.dedup_column,
            op_field=rule.op_field,
            excluded_columns=frozenset(rule.excluded_columns),
            evolve=rule.allow_field_addition,
            tables=tables,
            routes={topic: index[name] for topic, name in routes.items()},
            refused=dict(self._targets.refused),
            ranks={at: rank for rank, at in enumerate(sorted(batch.end))},
            feed=feed(self._settings.kafka, batch.start, batch.end, self._parallelism),
            buckets=buckets,
            reducers=reducers,
            max_letters=self._limits.room,
            routing=routing,
            case_insensitive=rule.case_insensitive,
            record_keys=rule.keys.mode == "record_key",
            upserts=rule.upsert,
            raw_ms=time.time_ns() // 1_000_000 if self._settings.events_only else None,
        ), names

    def _commit(self, plan: BatchPlan, names: list[str], result: Result, position: Position) -> dict[str, Committed]:
        """Commit every table; one that fails does not hold up the others, its error is raised after them."""
        work = [(names[index], files) for index, files in sorted(result.files.items())]
        topics = {name: [t for t, i in plan.routes.items() if names[i] == name] for name, _ in work}
        if plan.routing is not None:
            # Any topic may have events for any table.
            topics = dict.fromkeys(topics, sorted({topic for topic, _ in plan.ranks}))
        guarded = {names[t.index]: t.known_keys.certain for t in plan.tables}
        with ThreadPoolExecutor(COMMIT_THREADS) as pool:
            futures = {
                name: pool.submit(self._commit_table, name, files, position.only(topics[name]), guarded=guarded[name])
                for name, files in work
            }
        failed = [(name, error) for name, future in futures.items() if (error := future.exception())]
        for name, error in failed:
            # Only a refused commit is known to refer to no file; after any other error they are left alone.
            if isinstance(error, RetriableError):
                self._discard([name], attrs.evolve(result, files={0: dict(work)[name]}))
                self._targets.refresh(name)
        if failed:
            raise next((e for _, e in failed if not isinstance(e, RetriableError)), failed[0][1])
        return {name: future.result() for name, future in futures.items()}

    def _commit_table(self, name: str, files: list[bytes], position: Position, *, guarded: bool) -> Committed:
        target = self._targets[name]
        pending = Pending(
            files=files,
            position=target.stored.position.advanced(position),
            expected=target.stored,
            base=target.base,
            guarded=guarded,
            replaces=target.upsert,
        )
        done = commit(target.table, pending, self._settings.name)
        self._targets.committed(name, files, done)
        return done

    def _discard(self, names: list[str], result: Result) -> None:
        """Delete files that no commit will refer to; what cannot be deleted is an orphan, and harmless."""
        for index, files in result.files.items():
            for path in _paths(files):
                try:
                    self._targets[names[index]].table.delete_file(path)
                except ConnectorError as error:
                    self._log.warning("a file is left behind", table=names[index], reason=str(error))


def _paths(descriptions: Iterable[bytes]) -> list[str]:
    return [orjson.loads(description)["file-path"] for description in descriptions]
