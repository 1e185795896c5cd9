"""properties + records -> a sink's batches in this process: the product's own, but for Spark, Kafka and the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.types.schemas.schema_evolution import evolve, union_shapes
from connector.kafka.admin import TopicInfo
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.monitoring.listeners import BatchReport
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings, load
from connector.sink.convert.columns.field_matching import match_key_shapes, match_shape, merge_case_variants
from connector.sink.destinations.naming import table_name
from connector.sink.destinations.table_registry import BaseTableRegistry
from connector.sink.destinations.table_schema import choose_key, with_keys
from connector.sink.microbatch.ports import SinkPorts
from connector.sink.microbatch.processor import BatchProcessor
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import DeadLetterRef, SchemaChange, TablePlan
from tests.unit.destinations.memory import MemoryDestination
from tests.unit.local_job import LocalJob
from tests.unit.sink_plans import layout

BEGINNING = KafkaOffsets("c")
BASE = "name=local\nbootstrap.servers=localhost:9\ndebezium.sink.iceberg.warehouse=/nowhere\n"


class LocalTables(BaseTableRegistry[TablePlan]):
    """Tables that are made and evolved as events need them, by the sink's own rules."""

    KIND = "table"

    def name(self, topic: str) -> str:
        return table_name(topic, self._settings.table)

    def label(self, name: str) -> str:
        return name

    def plan(self, name: str, index: int, start: Mapping[TopicPartition, int]) -> TablePlan:
        keys = self._settings.table.keys
        return attrs.evolve(
            self._known[name], index=index, keys_from=keys.key_source(name), key_configured=bool(keys.of(name))
        )

    def expect_unavailable_values(self, name: str) -> None:
        raise AssertionError("nothing is looked up")

    def _load_existing(self, name: str) -> TablePlan | None:
        return None

    def _create(self, name: str, needs: list[SchemaChange]) -> TablePlan:
        columns = union_shapes(need.row for need in needs)
        if self._settings.table.case_insensitive:
            columns = pa.schema(merge_case_variants(columns))
            needs = match_key_shapes(needs, columns.names)
        keys = choose_key(needs, columns, self._settings.table, (name,))
        return self._plan(with_keys(columns, needs, keys), keys)

    def _evolve(self, name: str, known: TablePlan, needs: list[SchemaChange]) -> TablePlan:
        columns = known.layout.columns
        rule = self._settings.table
        for need in needs:
            row = match_shape(need.row, columns.names) if rule.case_insensitive else need.row
            columns = evolve(columns, row, add=rule.allow_field_addition)
        self.record_drift(name, (field for field in columns.names if field not in known.layout.columns.names))
        return self._plan(columns, known.layout.keys)

    def _plan(self, columns: pa.Schema, keys: tuple[str, ...]) -> TablePlan:
        settings = self._settings.table
        plain = {field.name: field.type for field in columns}
        upsert = settings.upsert and bool(keys)
        dated = upsert and settings.dedup_column in plain
        return TablePlan(0, layout(plain, keys), upsert=upsert, keep_deletes=settings.keep_deletes, dated=dated)


class LocalSink:
    """A sink over records in memory; `letters` has those of all batches."""

    def __init__(self, settings: SinkSettings, position: KafkaOffsets = BEGINNING) -> None:
        """Start at a position, which is the beginning of all topics where nothing else is said."""
        self.records: dict[TopicPartition, ConsumerRecords] = {}
        self.letters: list[DeadLetterRef] = []
        self.job = LocalJob(self.records)
        tables: Any = LocalTables(settings)
        self.destination = MemoryDestination(tables)
        self._end: dict[TopicPartition, int] = {}
        cluster, self.group, letters = Mock(), Mock(), Mock()
        cluster.topics.side_effect = lambda names: {name: TopicInfo(name, f"id-{name}", 9) for name in names}
        self.group.commit_offsets.return_value = None
        letters.write.side_effect = lambda letters, _: self.letters.extend(letters)
        self.offsets: Any = Mock()
        ports = SinkPorts(self.job, self.destination, self.offsets, cluster, letters, self.group)
        self.batches = BatchProcessor(settings, ports, position)

    def process(self, *records: tuple[TopicPartition, bytes | None, bytes | None]) -> BatchReport:
        """Bring records (topic-partition, key, value) in as one batch; raises what ends it."""
        start = dict(self._end)
        for at in dict.fromkeys(at for at, *_ in records):
            own = [(key, value) for place, key, value in records if place == at]
            first = start.setdefault(at, 0)
            self.records[at] = _to_run(at, first, own)
            self._end[at] = first + len(own)
        return self.batches.process(MicroBatch(0, start, dict(self._end)))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table that were committed, in the order in which their keys came."""
        return list(self.destination.rows.get(table, {}).values())


def _to_run(at: TopicPartition, first: int, own: Sequence[tuple[bytes | None, bytes | None]]) -> ConsumerRecords:
    keys, values = (pa.array([one[side] for one in own], pa.binary()) for side in (0, 1))
    return ConsumerRecords(*at, np.arange(first, first + len(own)), keys, values)


def local_sink(folder: Path, properties: Iterable[str]) -> LocalSink:
    """A sink of these properties."""
    file = folder / "local.properties"
    file.write_text(BASE + "\n".join(properties) + "\n")
    return LocalSink(load([file], environ={}))
