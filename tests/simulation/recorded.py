"""Recorded events -> the rows of tables of the simulated catalog, by the sink's own batches, wherever they are cut.

Tables, commits, offsets, watermarks and truncates are the product's own; each process of the sink may be a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from unittest.mock import patch

import attrs

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings
from connector.sink.convert.columns.column_renames import parse_renames
from connector.sink.destinations.iceberg.tables.source_schemas import SourceSchemas
from tests.model.recordings import Record
from tests.simulation.broker import Broker, Topic
from tests.simulation.catalog_server import CatalogServer, Rows
from tests.simulation.interruptions import Interruptions
from tests.simulation.process import NAME, Process, Surroundings, one_thread, quiet, settings_of
from tests.simulation.source import Truth
from tests.simulation.store import STORES

_NUMBERS = count(1_000_000)
_NOBODY_KNOWS = Truth(0, "poison")
BASE = (
    f"name={NAME}",
    "bootstrap.servers=localhost:9",
    "debezium.sink.iceberg.warehouse=/nowhere",
    "debezium.sink.iceberg.maintenance.enabled=false",
    "errors.tolerance=none",
)


@attrs.define(eq=False)
class Recording:
    """A topic's records in one order, in place of a source; nobody says what they mean."""

    log: list[Record]
    partitions: int

    @property
    def truth(self) -> Sequence[Truth]:
        return [_NOBODY_KNOWS] * len(self.log)


class RecordedBroker(Broker):
    """A cluster that has recordings."""

    def read(self, at: TopicPartition, start: int, end: int) -> ConsumerRecords:
        topic = self.topics[at[0]]
        own = [topic.source.log[place] for place in topic.places(at[1])[start:end]]
        rows = [(start + place, record.key, record.value) for place, record in enumerate(own)]
        return ConsumerRecords.of_records(at, rows, [record.headers for record in own])


class RecordedSchemas(SourceSchemas):
    """What a recorded topic of schema changes tells, all of which is there first."""

    def __init__(self, settings: SinkSettings, records: Sequence[Record]) -> None:
        super().__init__(settings)
        self._left = [record.value for record in records]

    def _read(self) -> None:
        while self._left:
            self._note(self._left.pop(0))


@attrs.define(eq=False)
class RecordedSink:
    """A sink over recorded topics; `restarts`: each batch is another process's first."""

    around: Surroundings
    settings: SinkSettings
    restarts: bool = False
    process: Process | None = None

    def take(self, end: Mapping[TopicPartition, int]) -> None:
        """Bring in a batch that goes so far, all other topic-partitions as far as they were."""
        if self.process is None or self.restarts:
            self.process = Process(self.around, self.settings, 2)
            self.process.start()
        self.process.discover()
        self.process.process(end)

    def rows(self, topic: str) -> Rows:
        """The rows of a topic's table, by the names that its columns have now."""
        server = self.around.server
        name = "d." + topic.replace(".", "_")
        table = server.tables[name]
        renames = parse_renames(table.properties)
        known = [field.name for field in table.schema.fields]
        found = []
        for row in server.rows(name):
            told = {renames.get(column, column): value for column, value in row.items() if value is not None}
            found.append({column: told.get(column) for column in known})
        return found


@contextmanager
def recorded_sink(
    folder: Path,
    topics: Mapping[str, Sequence[Record]],
    properties: Iterable[str],
    *,
    restarts: bool = False,
    schema_changes: Sequence[Record] = (),
) -> Iterator[RecordedSink]:
    """A sink of these properties over topics, with everything around it; `schema_changes` are of a side topic."""
    number, calls = next(_NUMBERS), Interruptions()
    server = CatalogServer("jdbc", store=number)
    found = {
        name: Topic(Recording(list(records), 1 + max(r.partition for r in records)), f"id-{name}")
        for name, records in topics.items()
    }
    around = Surroundings(number, RecordedBroker(found), server, calls)
    STORES[number] = (server, calls)
    told = [f"debezium.sink.iceberg.schema-change-topics={name}" for name in sorted({r.topic for r in schema_changes})]
    settings = settings_of((*BASE, f"topics={','.join(topics)}", *told, *properties), str(folder))
    place = "connector.sink.destinations.iceberg.tables.iceberg_tables.SourceSchemas"
    try:
        # Old snapshots of the offsets table stay: to drop them is Java's.
        kept = patch("connector.iceberg.state.system_tables.retain_newest_snapshots")
        schemas = patch(place, lambda of: RecordedSchemas(of, schema_changes))
        with quiet(), one_thread(lazy=False), kept, schemas:
            yield RecordedSink(around, settings, restarts)
    finally:
        STORES.pop(number, None)


def cuts(records: Sequence[Record], step: int, rng: Random) -> Iterator[dict[TopicPartition, int]]:
    """Where batches of so many records end, each partition in its own order, partitions in any."""
    left = {at: sum((r.topic, r.partition) == at for r in records) for at in {(r.topic, r.partition) for r in records}}
    ends = dict.fromkeys(sorted(left), 0)
    while any(ends[at] < left[at] for at in ends):
        for _ in range(step):
            open_ones = [at for at in ends if ends[at] < left[at]]
            if open_ones:
                ends[rng.choice(open_ones)] += 1
        yield dict(ends)
