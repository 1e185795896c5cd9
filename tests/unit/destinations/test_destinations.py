"""What every destination's writers have to do with the outputs of the fold, whatever they write to."""

from __future__ import annotations

import json
import pickle
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.opensearch.bulk import document_sender
from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.bulk.bulk_processor import DocumentCounts
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from connector.settings.sink.sink_types import DESTINATIONS_PACKAGE, SINK_TYPES, load_sink_type
from connector.sink.convert.decoder import decode
from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.destinations.iceberg.write.table_writer import IcebergWriterFactory
from connector.sink.destinations.opensearch.write.document_requests import IndexTarget
from connector.sink.destinations.opensearch.write.document_writer import OpenSearchWriterFactory
from connector.sink.job.map_task import MapTask
from connector.sink.job.reduce_task import ReduceTask
from connector.sink.model.destination import Destination, WriterFactory
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import OutputKind, TaskOutput, unpack_value
from tests.unit.destinations.memory import MemoryDestination, MemoryTables
from tests.unit.sink_plans import append, plan, run, upsert

COLUMNS = {"id": pa.int64(), "v": pa.int64()}
Row = dict[str, Any]


@pytest.mark.parametrize("name", SINK_TYPES)
def test_every_sink_type_has_a_folder(name: str) -> None:
    """What settings take has options, and a destination that the registry opens."""
    assert load_sink_type(name).chapters
    assert callable(import_module(f"{DESTINATIONS_PACKAGE}.{name}.destination").open_destination)


class WriterContract(ABC):
    """The rules; a destination says how its writers are made, and what there is to see of what they wrote."""

    writers: WriterFactory

    def table(self, table: TablePlan) -> TablePlan:
        """The plan of an empty table of this destination."""
        return table

    @abstractmethod
    def rows(self, batch: BatchPlan, outputs: Sequence[TaskOutput]) -> list[Row]:
        """The rows that are there once these outputs are committed."""

    def test_they_travel_to_executors(self) -> None:
        """Spark pickles them."""
        again = pickle.loads(pickle.dumps(self.writers))
        assert (again, again.follows_keys) == (self.writers, self.writers.follows_keys)

    def test_a_task_without_rows_hands_nothing_on(self) -> None:
        """No file, no request, no description."""
        assert list(self.writers.open(plan(), "x").close()) == []

    def test_records_without_headers_have_no_key_changes(self) -> None:
        """A run that names no other keys leaves its rows as they are."""
        table = self.table(upsert(0, COLUMNS, ("id",)))
        records = run({"id": 1, "v": 1}, keys=[{"id": 1}])
        (part,) = decode(records, plan(table)).parts
        same, outputs = self.writers.open(plan(table), "x").find_key_changes(table, part, records)
        assert (same.rows, list(outputs)) == (part.rows, [])

    def test_every_event_is_appended(self) -> None:
        """A table without key takes each event as a row; what was written is described under its index."""
        batch = plan(self.table(append(0, COLUMNS)))
        outputs = self._run(batch, [{"id": 1, "v": 1}, {"id": 1, "v": 2}, {"id": 2, "v": 3}], keys=None)
        assert [row["v"] for row in self.rows(batch, outputs)] == [1, 2, 3]
        assert set(_result(outputs).written) == {0}

    def test_the_last_change_of_a_key_wins(self) -> None:
        """Inserts, an update, a delete: each key has its last row, a deleted one none."""
        batch = plan(self.table(upsert(0, COLUMNS, ("id",), buckets=2)))
        values = [{"id": 1, "v": 1}, {"id": 2, "v": 2}, {"id": 3, "v": 3}, {"id": 1, "v": 4}, None]
        outputs = self._run(batch, values, keys=[{"id": key} for key in (1, 2, 3, 1, 2)])
        assert self.rows(batch, outputs) == [{"id": 1, "v": 4}, {"id": 3, "v": 3}]
        assert set(_result(outputs).written) == {0}

    def _run(self, batch: BatchPlan, values: list[Row | None], keys: list[Row] | None) -> list[TaskOutput]:
        """One map task and one reduce task."""
        mapping, reducing = MapTask(batch, self.writers), ReduceTask(batch, self.writers, judged=False)
        mapped = [*mapping.take([run(*values, keys=keys)]), *mapping.finish()]
        outputs = [output for output in mapped if output.kind != OutputKind.CHANGES]
        for one in sorted((o for o in mapped if o.kind == OutputKind.CHANGES), key=lambda o: o.bucket):
            outputs += reducing.take(one)
        return [*outputs, *reducing.finish()]


def _result(outputs: Sequence[TaskOutput]) -> JobResult:
    told = (one.payload for one in outputs if one.kind == OutputKind.DRIVER)
    return JobResult().add(map(unpack_value, told))


def _sorted(rows: Sequence[Row]) -> list[Row]:
    return sorted(({name: row[name] for name in COLUMNS} for row in rows), key=lambda row: (row["id"], row["v"]))


class TestIceberg(WriterContract):
    """Rows are in the data files that outputs describe."""

    writers = IcebergWriterFactory()

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._location = str(tmp_path)

    def table(self, table: TablePlan) -> TablePlan:
        layout = attrs.evolve(file_layout(table), location=self._location)
        return attrs.evolve(table, layout=layout, known_keys=KeyBounds.nothing())

    def rows(self, batch: BatchPlan, outputs: Sequence[TaskOutput]) -> list[Row]:
        files = [file.path for file in _result(outputs).written.get(0, [])]
        return _sorted([row for file in files for row in pq.read_table(file).to_pylist()])


class TestOpenSearch(WriterContract):
    """Documents are in the index as soon as a writer is closed."""

    writers = OpenSearchWriterFactory(
        ConnectionSettings(()), BulkSettings(), {"d.t": IndexTarget(WriteOptions("i"), "offset")}
    )

    @pytest.fixture(autouse=True)
    def _index(self, monkeypatch: pytest.MonkeyPatch) -> None:
        held = self._held = dict[str, Row]()

        class Bulk:
            def __init__(self, *_: object) -> None:
                pass

            def send(self, actions: Any) -> None:
                lines = iter(actions.body.decode().splitlines())
                for line in lines:
                    ((action, told),) = json.loads(line).items()
                    held.pop(told["_id"], None)
                    if action != "delete":
                        held[told["_id"]] = json.loads(next(lines))

            def settle(self) -> None:
                pass

            def finish(self) -> DocumentCounts:
                return DocumentCounts()

        monkeypatch.setattr(document_sender, "BulkProcessor", Bulk)

    def rows(self, batch: BatchPlan, outputs: Sequence[TaskOutput]) -> list[Row]:
        return _sorted(list(self._held.values()))


class TestMemory(WriterContract):
    """A third destination, as small as the port lets it be: rows are there once a batch is committed."""

    writers = MemoryDestination(MemoryTables({})).writers()

    def rows(self, batch: BatchPlan, outputs: Sequence[TaskOutput]) -> list[Row]:
        memory = MemoryDestination(MemoryTables({"t": batch.tables[0]}))
        destination: Destination = memory
        names = list(destination.tables.find(["t"]).values())
        commits = destination.committer.commit(batch, names, _result(outputs), KafkaOffsets())
        assert commits.keys() == {"t"}
        return _sorted(list(memory.rows["t"].values()))
