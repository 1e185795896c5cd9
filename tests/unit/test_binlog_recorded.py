"""Events of a real MariaDB 10.11 and MySQL 9.7 by Debezium 3.5.0.Final -> the rows that they had, however cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import attrs
import numpy as np
import pyarrow as pa
import pytest

from connector.iceberg.types.schemas.schema_evolution import union_shapes
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings import EventSettings
from connector.settings.converters.schema_registry import RegistrySettings
from connector.sink.convert.decoder import decode
from connector.sink.fold.fold import fold
from connector.sink.model.plan import BatchPlan
from tests.harness.tiers import tiered
from tests.model import binlog_recordings
from tests.model.binlog_recordings import SERVERS, VARIANTS
from tests.model.binlog_rows import UNTOLD, row_text
from tests.model.recordings import Record
from tests.model.schema_server import serve_schemas
from tests.unit import sink_plans
from tests.unit.folds import select_rows_to_keep

TABLES = ("types", "customers", "evolve", "busy")
CASES = tiered(
    [*product(SERVERS, VARIANTS, TABLES)],
    kept=[("mariadb", "schema", "customers"), ("mysql", "plain", "busy"), ("mysql", "avro", "types")],
)
EVENTS = EventSettings("auto", "auto", ("op", "source.ts_ns"), "__")


@pytest.fixture(scope="module")
def events() -> Iterator[dict[tuple[str, str], EventSettings]]:
    """How the events of each server and variant are read; Avro's schemas are served."""
    found = {(server, variant): EVENTS for server in SERVERS for variant in VARIANTS}
    with (
        serve_schemas(binlog_recordings.writer_schemas("mariadb")) as mariadb,
        serve_schemas(binlog_recordings.writer_schemas("mysql")) as mysql,
    ):
        for server, url in (("mariadb", mariadb), ("mysql", mysql)):
            registry = RegistrySettings((("url", url),))
            found[server, "avro"] = EventSettings("avro", "avro", EVENTS.add_fields, "__", registry, registry)
        yield found


def _runs(records: Sequence[Record]) -> list[ConsumerRecords]:
    """The records by partition, told of the connector as a fetch would be."""
    runs = []
    for number in sorted({record.partition for record in records}):
        own = [record for record in records if record.partition == number]
        rows = [(record.offset, record.key, record.value) for record in own]
        runs.append(ConsumerRecords.of_records(("t", number), rows, [record.headers for record in own]))
    return runs


def _plan(events: EventSettings, *columns: pa.Schema) -> BatchPlan:
    tables = [sink_plans.upsert(0, dict(zip(one.names, one.types, strict=True)), ("id",)) for one in columns]
    return sink_plans.plan(*tables, events=events, ranks={("t", number): number for number in range(3)})


def _columns(records: Sequence[Record], events: EventSettings) -> pa.Schema:
    """The columns of a new table, as all the events ask for them."""
    found = pa.schema([])
    for _ in range(3):
        plan = _plan(events, found) if len(found) else _plan(events)
        needs = [need for run in _runs(records) for need in decode(run, plan).needs]
        found = union_shapes([pa.struct(list(found)), *(need.row for need in needs)])
    return found


@pytest.mark.parametrize(("server", "variant", "table"), CASES)
@pytest.mark.parametrize("step", tiered((1, 4), kept=(4,)))
def test_the_recorded_events_end_in_the_recorded_rows(
    events: dict[tuple[str, str], EventSettings], server: str, variant: str, table: str, step: int
) -> None:
    """Folded in parts cut anywhere, and then together, each key has the row that the database had; nothing is dead."""
    records = binlog_recordings.load(server, variant, table)
    reading = events[server, variant]
    plan = _plan(reading, _columns(records, reading))
    names = [name for name in _names(server, table) if variant != "plain" or name not in UNTOLD]
    truth = [{name: row[name] for name in names} for row in binlog_recordings.state(server, variant, table)]
    for cut in range(0, len(records), step):
        kept = []
        for some in (records[:cut], records[cut:]):
            outcomes = [decode(run, plan) for run in _runs(some)]
            assert not any(outcome.faults or outcome.needs for outcome in outcomes)
            parts = [part for outcome in outcomes for part in outcome.parts]
            kept += select_rows_to_keep(fold(parts, ("id",)), ("id",)) if parts else []
        folded = fold(kept, ("id",))
        rows = [row for part in folded.parts for row in part.rows.to_pylist()]
        deleted = np.concatenate([part.deleted for part in folded.parts])
        live = [rows[int(at)] for at in folded.winners if not deleted[int(at)]]
        found = [{name: row_text(name, row[name]) for name in names} for row in live]
        assert sorted(found, key=str) == sorted(truth, key=str), cut


def _names(server: str, table: str) -> list[str]:
    return list(binlog_recordings.state(server, "schema", table)[0])


@pytest.mark.parametrize("variant", ["schema", "unwrap", "avro"])
@pytest.mark.parametrize("server", SERVERS)
def test_types_are_told_without_any_option(
    events: dict[tuple[str, str], EventSettings], server: str, variant: str
) -> None:
    """TIME and decimals of 65 digits are text from the first event on, flattened or not; the rest has its type."""
    columns = _columns(binlog_recordings.load(server, variant, "types"), events[server, variant])
    own = {"mariadb": {"uu": pa.uuid()}, "mysql": {"ve": pa.list_(pa.float32())}}[server]
    told = ("t0", "t3", "t6", "dw", "bu", "de", "s6", "d6", "b1", *own)
    assert {name: columns.field(name).type for name in told} == {
        **dict.fromkeys(("t0", "t3", "t6", "dw"), pa.string()),
        "bu": pa.decimal128(20, 0),
        "de": pa.decimal128(10, 2),
        "s6": pa.timestamp("us", "UTC"),
        "d6": pa.timestamp("us"),
        "b1": pa.bool_(),
        **own,
    }


@pytest.mark.parametrize("server", SERVERS)
def test_the_header_decides_for_flattened_events(server: str) -> None:
    """Without it nothing tells MySQL's TIME from a time of day: values beyond it are dead letters."""
    runs = _runs(binlog_recordings.load(server, "unwrap", "types"))
    assert {run.connector for run in runs} == {server}
    dead = [decode(attrs.evolve(run, connector=None), _plan(EVENTS)).faults for run in runs]
    assert any("MicroTime" in fault.reason for faults in dead for fault in faults)
