"""A batch's offsets, settings and tables -> the plan of its job: tables, tasks, and what each executor reads."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import attrs

from connector.kafka.consumer import assign_ranges
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings
from connector.sink.job.task_counts import count_buckets, count_reducers
from connector.sink.microbatch.planning.task_shares import TableShares
from connector.sink.model.destination import TableRegistry
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import BatchPlan, FieldRoutes, TablePlan
from connector.sink.model.truncate_scope import TruncateScope


@attrs.frozen
class _TableRoutes:
    """The tables of a batch by index, and how events find theirs: by their topic, or by what they say (`by_field`)."""

    names: list[str]
    by_topic: dict[str, int]
    by_field: FieldRoutes | None


class BatchPlanner:
    """Plans the jobs of one sink's batches; `parallelism` is how many tasks run at a time."""

    def __init__(self, settings: SinkSettings, tables: TableRegistry, parallelism: int) -> None:
        """Start with nothing known of how events are spread over tables."""
        self._settings, self._tables, self._parallelism = settings, tables, parallelism
        self._shares = TableShares()

    def note(self, names: Sequence[str], metrics: TaskMetrics) -> None:
        """Take note of a batch that went through, for the sizes of the next; `names` are its tables by index."""
        self._shares.note(names, metrics)

    def plan(
        self,
        batch: MicroBatch,
        truncated: Mapping[str, TruncateScope],
        *,
        epochs: Mapping[TopicPartition, int],
        max_letters: int,
    ) -> tuple[BatchPlan, list[str]]:
        """Return the plan of the next job, and the names of its tables by index.

        Args:
            batch: the offsets to read.
            truncated: what truncates of the batch empty, by table.
            epochs: the leader epochs of the records before the batch, where they are known.
            max_letters: how many records may be dead letters.
        """
        routes, settings = self._find_routes(batch), self._settings.table
        writers = count_reducers(batch.events, self._parallelism)
        return BatchPlan(
            label=f"{batch.id:06d}",
            events=self._settings.events,
            dedup_column=settings.dedup_column,
            op_field=settings.op_field,
            excluded_columns=frozenset(settings.excluded_columns),
            evolve=settings.allow_field_addition,
            tables=self._plan_tables(batch, truncated, routes, writers),
            routes=routes.by_topic,
            refused=dict(self._tables.refused),
            ranks={at: rank for rank, at in enumerate(sorted(batch.end))},
            assignment=assign_ranges(
                self._settings.kafka,
                batch.start,
                batch.end,
                self._parallelism,
                mixed=routes.by_field is not None,
                epochs=epochs,
            ),
            reducers=writers,
            max_letters=max_letters,
            routing=routes.by_field,
            case_insensitive=settings.case_insensitive,
            record_keys=settings.keys.mode == "record_key",
            upserts=settings.upsert,
            variants=settings.new_tables.nested_as_variant,
            transaction_topic=self._settings.kafka.transactions.topic,
            raw_ms=time.time_ns() // 1_000_000 if settings.events_only else None,
        ), routes.names

    def _find_routes(self, batch: MicroBatch) -> _TableRoutes:
        tables = self._tables
        by_topic = tables.find(topic for topic in batch.topics if topic not in tables.refused)
        names = sorted(set(by_topic.values())) or tables.list_routed()
        index = {name: i for i, name in enumerate(names)}
        rule = self._settings.table.routes
        by_field = None if rule is None else FieldRoutes(rule, index, dict(tables.refused_tables))
        return _TableRoutes(names, {topic: index[name] for topic, name in by_topic.items()}, by_field)

    def _plan_tables(
        self, batch: MicroBatch, truncated: Mapping[str, TruncateScope], routes: _TableRoutes, writers: int
    ) -> tuple[TablePlan, ...]:
        expected = self._shares.estimate(batch, routes.names, routes.by_topic, routes.by_field)
        return tuple(
            attrs.evolve(
                self._tables.plan(name, index, batch.start),
                truncated=truncated.get(name, TruncateScope()),
                buckets=count_buckets(events, writers),
            )
            for index, (name, events) in enumerate(zip(routes.names, expected, strict=True))
        )
