"""One micro-batch, top to bottom: plan -> job -> dead letters -> commits -> offsets. On the driver.

The batch is the unit: what its job wrote lands table by table (`iceberg.committer`), then its end offsets are
saved. A batch that is replayed after a crash changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import attrs
import structlog

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.kafka.admin import TopicInfo
from connector.kafka.dlq.rejected_records import RecordCoordinates, record_coordinates
from connector.runtime.monitoring.listeners import BatchReport
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.retry import call_with_retries
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings
from connector.sink.fold.grown_topics import find_unmeasured_partitions
from connector.sink.microbatch.aligned_ends import TopicGrowth
from connector.sink.microbatch.background_cleanup import BackgroundCleanup
from connector.sink.microbatch.batch_log import BatchLog, describe_first
from connector.sink.microbatch.error_tolerance import ErrorTolerance
from connector.sink.microbatch.group_follower import GroupFollower
from connector.sink.microbatch.lacking_fields import check_fields
from connector.sink.microbatch.planning.batch_planner import BatchPlanner
from connector.sink.microbatch.planning.new_truncates import find_new_truncates, find_table_sources
from connector.sink.microbatch.ports import SinkPorts
from connector.sink.microbatch.start_offsets import check_topic_id
from connector.sink.microbatch.transactions.transactions import CompleteBatch
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult, SourceProgress
from connector.sink.model.truncate_scope import TableSources, TruncateScope
from connector.sink.model.truncates import Truncate

MAX_ROUNDS = 8
"""A job runs again after tables were created or evolved for it; each round brings in every shape seen so far."""

LOOK_AGAIN_S = 2.0
"""So long after a batch that left something of a grown topic for later it is looked at again, if nothing comes."""


class BatchProcessor:
    """Carries batches out for one sink, one after the other."""

    def __init__(self, settings: SinkSettings, ports: SinkPorts, position: KafkaOffsets) -> None:
        """Begin at `position`."""
        self._settings, self._job, self._offsets = settings, ports.job, ports.offsets
        self._destination = ports.destination
        self._targets, self._committer = ports.destination.tables, ports.destination.committer
        self._cluster, self._letters, self._group = ports.cluster, ports.letters, GroupFollower(ports.group)
        self.transactions = ports.transactions
        self._limits = ErrorTolerance(settings.errors)
        self._planner = BatchPlanner(settings, ports.destination.tables, ports.job.parallelism)
        self._dead, self._stages = set[RecordCoordinates](), Counter[str]()
        self._epochs = {at: (position.offsets[at], epoch) for at, epoch in position.epochs.items()}
        self._growth = TopicGrowth(settings.batch.max_events)
        self._look_at: float | None = None
        self._log, self._batch_log = structlog.get_logger(), BatchLog()
        self._beside = ThreadPoolExecutor(1, "offsets")
        self._cleanup = BackgroundCleanup(ports.destination.clean_up)
        self._settling: Future[None] | None = None
        self._following: Future[None] | None = None
        self.position = position

    def process(self, batch: MicroBatch) -> BatchReport:
        """Bring a batch into its tables.

        Raises:
            RetriableError: broker or catalog stayed away longer than `errors.retry.timeout`; whatever was committed
                is known to be, and will be left out when the batch comes again.
            FatalError: a person has to look.
        """
        began = time.monotonic()
        aligned = self._align(batch)
        self._look_at = time.monotonic() + LOOK_AGAIN_S if (is_cut := aligned != batch) else None
        batch, transaction = self._complete(aligned)
        if (transaction is not None or is_cut) and not batch.events:
            self._await_settlement()
            return BatchReport(batch.id, time.monotonic() - began, batch.end, self.position.transaction)
        position = attrs.evolve(self._end_position(batch), transaction=transaction or self.position.transaction)
        self._dead, self._stages = set(), Counter()
        report, commits = call_with_retries(lambda: self._attempt(batch, position), self._settings.errors)
        self._limits.record(report.dead_letters)
        self._note_epochs(batch, report.metrics)
        epochs = {at: epoch for at, (end, epoch) in self._epochs.items() if position.offsets.get(at) == end}
        self.position = position = attrs.evolve(position, epochs=epochs)
        self._await_settlement()
        self._settling = self._beside.submit(self._settle, position, batch.end, commits)
        if not self._destination.keeps_offsets:
            # The versions of documents follow from what is stored: were two batches read again as one after a crash,
            # it would give some changes smaller ones than they had.
            self._await_settlement()
        return attrs.evolve(report, seconds=time.monotonic() - began)

    def _note_epochs(self, batch: MicroBatch, metrics: TaskMetrics) -> None:
        """Keep the leader epochs of the last records: the next batch notices by them if a log was cut meanwhile."""
        read = metrics.fetch.epochs
        ends = {at: (end, read[at][1]) for at, end in batch.end.items() if at in read and read[at][0] == end - 1}
        kept = {at: known for at, known in self._epochs.items() if batch.end.get(at, known[0]) == known[0]}
        self._epochs = {**kept, **ends}

    def close(self) -> None:
        """Wait until the last batch's offsets are saved and what is cleaned up is; disconnect, and end all threads.

        Raises:
            RetriableError, FatalError: they could not be saved; the tables know theirs.
        """
        with ExitStack() as ends:
            for end in (self._committer.close, self._cleanup.close, self._group.close, self._beside.shutdown):
                ends.callback(end)
            self._await_settlement()

    def _await_settlement(self) -> None:
        """Wait for the saving of the batch before; raise what went wrong there."""
        settling, self._settling = self._settling, None
        if settling is not None:
            settling.result()

    def _settle(
        self, position: KafkaOffsets, end: Mapping[TopicPartition, int], commits: Mapping[str, StoredCommit]
    ) -> None:
        """Save a batch's offsets: beside the next batch's job where the tables' own summaries already hold them."""
        call_with_retries(lambda: self._offsets.save(position, commits), self._settings.errors)
        self._group.follow(end)
        self._cleanup.begin()

    def expect_group(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Have the consumer group follow to offsets that were saved before, as soon as there is time."""
        self._group.expect(offsets)

    def rest(self) -> None:
        """Have the group follow where no batch tells it; called some times a second, also during a batch."""
        if self._group.is_due and (self._following is None or self._following.done()):
            self._following = self._beside.submit(self._group.catch_up)

    def _align(self, batch: MicroBatch) -> MicroBatch:
        """End the batch at one moment in all partitions of each topic that got some."""
        if not self._settings.table.upsert:
            return batch

        def align() -> MicroBatch:
            return self._growth.align(batch, lambda asked: self.plan(asked)[0], self._cluster, self._targets)

        return call_with_retries(align, self._settings.errors)

    def _complete(self, batch: MicroBatch) -> tuple[MicroBatch, str | None]:
        """End the batch where no transaction of the source is cut, if that is asked for, and give the last of them."""
        if self.transactions is None:
            return batch, None
        transactions = self.transactions

        def cut() -> CompleteBatch:
            plan, _ = self.plan(transactions.find_unread(batch))
            return transactions.whole(batch, plan)

        whole = call_with_retries(cut, self._settings.errors)
        return whole.batch, whole.transaction

    @property
    def overdue(self) -> bool:
        """Whether a part of what was held back need not be waited for any longer."""
        if self._look_at is not None and time.monotonic() >= self._look_at:
            return True
        return self.transactions is not None and self.transactions.overdue

    def stop_waiting(self, before: Mapping[TopicPartition, int]) -> None:
        """Hold nothing back any longer in the next batch of the transactions that began before these offsets."""
        if self.transactions is not None:
            self.transactions.stop_waiting(before)

    def _end_position(self, batch: MicroBatch) -> KafkaOffsets:
        unknown = [topic for topic in batch.topics if not self.position.topic_ids.get(topic)]
        topics: dict[str, TopicInfo] = call_with_retries(lambda: self._cluster.topics(unknown), self._settings.errors)
        ids = {name: topic.id for name, topic in topics.items()}
        return self.position.advance(KafkaOffsets(self.position.cluster_id, ids, batch.end))

    def _attempt(self, batch: MicroBatch, position: KafkaOffsets) -> tuple[BatchReport, dict[str, StoredCommit]]:
        plan, names, result = self._run(batch)
        with result.resources:
            try:
                self._check_topics(batch, position)
            except ConnectorError:
                self._committer.discard(names, result)
                raise
            return self._commit(batch, plan, names, result, position)

    def _check_topics(self, batch: MicroBatch, position: KafkaOffsets) -> None:
        """Compare the topics' ids once all is read: an id never comes back, so what was read is of those topics.

        Raises:
            RetriableError: the cluster is away, or a topic is.
            GapError: a topic was deleted and made again; its first records may be behind the offsets that were read.
        """
        topics = self._cluster.topics(batch.topics)
        for name in batch.topics:
            if name not in topics:
                raise RetriableError(f"topic {name} is gone while it is read")
            check_topic_id(topics[name], position.topic_ids.get(name, ""))

    def _commit(
        self, batch: MicroBatch, plan: BatchPlan, names: list[str], result: JobResult, position: KafkaOffsets
    ) -> tuple[BatchReport, dict[str, StoredCommit]]:
        """Commit what a job wrote; give the batch's report, and the commits by the tables' full names."""
        if result.metrics.truncates and not self._settings.table.truncate:
            self._log.warning("truncates are ignored; see truncate.enabled", batch=batch.id)
        # A batch that is tried again does not write its letters again.
        fresh = [letter for letter in result.dead_letters if record_coordinates(letter) not in self._dead]
        try:
            lacking = [(self._targets.label(names[index]), field) for index, field in result.metrics.drift]
            check_fields(self._settings.table, lacking)
            self._limits.check(result.dead_letters, result.metrics)
            self._letters.write(fresh, position.topic_ids)
        except ConnectorError:
            self._committer.discard(names, result)
            raise
        self._dead.update(map(record_coordinates, fresh))
        self._stages.update(letter.stage for letter in fresh)
        self._planner.note(names, result.metrics)
        self._batch_log.log_outcome(result.metrics, fresh)
        for index, field in result.metrics.drift:
            self._targets.record_drift(names[index], (field,))
        began = time.monotonic()
        commits = self._committer.commit(plan, names, result, position)
        report = BatchReport(
            batch=batch.id,
            seconds=0.0,
            end=batch.end,
            transaction=position.transaction,
            metrics=result.metrics,
            tables={name: commit.counts for name, commit in commits.items()},
            dead_letters=len(self._dead),
            drift={self._targets.label(name): len(fields) for name, fields in self._targets.drift.items()},
            stages=dict(self._stages),
            newest_ms=self._newest_ms(plan, names, result.metrics),
            commit_seconds=time.monotonic() - began,
            schema_changes=dict(self._targets.schema_changes),
            reasons=describe_first(fresh),
            topics={self._targets.label(names[i]): topics for i, topics in plan.topics_by_table.items()},
        )
        return report, {commit.name: commit.noted for commit in commits.values()}

    def _newest_ms(self, plan: BatchPlan, names: list[str], metrics: TaskMetrics) -> dict[str, int]:
        """Return the time of each table's newest event, where the dedup column is a time."""
        second = plan.dedup_units_per_second
        if second is None:
            return {}
        return {self._targets.label(names[i]): value * 1000 // second for i, value in metrics.newest.items() if value}

    def _run(self, batch: MicroBatch) -> tuple[BatchPlan, list[str], JobResult]:
        truncated: dict[str, TruncateScope] = {}
        for _ in range(MAX_ROUNDS):
            plan, names = self.plan(batch, truncated)
            with self._targets.detect_expired_reads(*names):
                destination = self._destination
                result = self._job.run(plan, destination.writers(), destination.lookups(names, plan))
            # Before all tables are ready not every source has shown itself.
            fresh = self._find_new_truncates(plan, names, result) if result.ready else {}
            if result.ready and not fresh:
                return plan, names, result
            truncated |= {names[index]: scope for index, scope in fresh.items()}
            result.resources.close()
            self._committer.truncate(plan, names, fresh)
            self._committer.discard(names, result)
            for index in result.tables_lacking_values:
                self._targets.expect_unavailable_values(names[index])
            self._targets.apply_schema_changes(result.schema_changes)
        raise FatalError(f"batch {batch.id}: tables could not be prepared for its events; see the log")

    def _find_new_truncates(self, plan: BatchPlan, names: list[str], result: JobResult) -> dict[int, TruncateScope]:
        """Decide what truncates empty that the job did not know of, by index of their table."""
        if not self._settings.table.truncate:
            return {}
        return find_new_truncates(
            plan,
            names,
            result.truncates,
            lambda table, name, truncates: self.sources(plan, table, name, result.progress, truncates),
        )

    def sources(
        self,
        plan: BatchPlan,
        table: TablePlan,
        name: str,
        progress: Iterable[SourceProgress],
        truncates: Iterable[Truncate],
    ) -> TableSources:
        """Return what is known of where a table's rows are from, with what was seen now and truncates of it."""
        return find_table_sources(plan, table, name, progress, truncates, self._targets, self.position.offsets)

    def plan(
        self, batch: MicroBatch, truncated: Mapping[str, TruncateScope] | None = None
    ) -> tuple[BatchPlan, list[str]]:
        """Return the plan of the next job, and the names of its tables by index.

        Raises:
            RetriableError: the cluster is away, and has to tell where the logs of a topic that got partitions end.
        """
        epochs = {at: epoch for at, (end, epoch) in self._epochs.items() if batch.start.get(at) == end}
        plan, names = self._planner.plan(batch, truncated or {}, epochs=epochs, max_letters=self._limits.remaining)
        wanted = {
            at for table in plan.tables for at in find_unmeasured_partitions(table.watermarks)
        } & plan.ranks.keys()
        if wanted:
            # Behind an open transaction too: another source's says nothing of how far this one had come.
            plan = attrs.evolve(plan, log_ends=self._cluster.fetch_log_ends(sorted(wanted)))
        return plan, names
