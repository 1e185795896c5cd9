"""Events of a real MariaDB 10.11 by Debezium's connector 3.5.0.Final -> the rows that it had, however they are cut."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest

from connector.iceberg.types.schema_evolution import union_shapes
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from connector.sink.fold.fold import fold, select_rows_to_keep
from connector.sink.model.plan import BatchPlan
from tests.model.mariadb_rows import row_text
from tests.model.recordings import FIXTURES, Record, parse_line
from tests.tiers import tiered
from tests.unit import sink_plans

FOLDER = FIXTURES / "mariadb"
VARIANTS = ("schema", "unwrap")
TABLES = ("types", "customers", "evolve")
EVENTS = EventSettings("auto", "auto", ("op", "source.ts_ns"), "__")


def _load(variant: str, table: str) -> list[Record]:
    lines = gzip.decompress((FOLDER / f"{variant}.jsonl.gz").read_bytes()).decode().splitlines()
    records = [parse_line(json.loads(line)) for line in lines]
    return [record for record in records if record.topic == f"{variant}.shop.{table}"]


def _truth(table: str, variant: str) -> list[dict[str, Any]]:
    """The rows at the end; ExtractNewRecordState puts a column's default where a null was, which nobody can know."""
    rows = [json.loads(line) for line in (FOLDER / f"{table}.json").read_text("utf-8").splitlines()]
    lost = (variant, table) == ("unwrap", "evolve")
    return [{**row, "b": "new"} if lost and row["b"] is None else row for row in rows]


def _runs(records: Sequence[Record]) -> list[ConsumerRecords]:
    """The records by partition, told of the connector as a fetch would be."""
    runs = []
    for number in sorted({record.partition for record in records}):
        own = [record for record in records if record.partition == number]
        rows = [(record.offset, record.key, record.value) for record in own]
        runs.append(ConsumerRecords.of_records(("t", number), rows, [record.headers for record in own]))
    return runs


def _plan(*columns: pa.Schema) -> BatchPlan:
    tables = [sink_plans.upsert(0, dict(zip(one.names, one.types, strict=True)), ("id",)) for one in columns]
    return sink_plans.plan(*tables, events=EVENTS, ranks={("t", number): number for number in range(3)})


def _columns(records: Sequence[Record]) -> pa.Schema:
    """The columns of a new table, as all the events ask for them."""
    found = pa.schema([])
    for _ in range(3):
        plan = _plan(found) if len(found) else _plan()
        needs = [need for run in _runs(records) for need in decode(run, plan).needs]
        found = union_shapes([pa.struct(list(found)), *(need.row for need in needs)])
    return found


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("step", tiered((1, 4), kept=(4,)))
def test_the_recorded_events_end_in_the_recorded_rows(variant: str, table: str, step: int) -> None:
    """Folded in parts cut anywhere, and then together, each key has the row that the database had; nothing is dead."""
    records = _load(variant, table)
    plan = _plan(_columns(records))
    truth = _truth(table, variant)
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
        found = [{name: row_text(name, row[name]) for name in truth[0]} for row in live]
        assert sorted(found, key=str) == sorted(truth, key=str), cut


@pytest.mark.parametrize("variant", VARIANTS)
def test_types_are_told_without_any_option(variant: str) -> None:
    """TIME and decimals of 65 digits are text from the first event on, flattened or not; the rest has its type."""
    columns = _columns(_load(variant, "types"))
    types = {name: columns.field(name).type for name in ("t0", "t3", "t6", "dw", "bu", "de", "s6", "d6", "b1", "uu")}
    assert types == {
        **dict.fromkeys(("t0", "t3", "t6", "dw"), pa.string()),
        "bu": pa.decimal128(20, 0),
        "de": pa.decimal128(10, 2),
        "s6": pa.timestamp("us", "UTC"),
        "d6": pa.timestamp("us"),
        "b1": pa.bool_(),
        "uu": pa.uuid(),
    }


def test_the_header_decides_for_flattened_events() -> None:
    """Without it nothing tells MariaDB's TIME from a time of day: values beyond it are dead letters."""
    runs = _runs(_load("unwrap", "types"))
    assert {run.connector for run in runs} == {"mariadb"}
    dead = [decode(attrs.evolve(run, connector=None), _plan()).faults for run in runs]
    assert any("MicroTime" in fault.reason for faults in dead for fault in faults)
