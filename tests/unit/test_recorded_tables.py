"""Recorded events in batches cut at every point -> Iceberg tables with the databases' rows, by the sink's own commits.

Truncates, tables without key and renamed columns need a table's offsets, watermarks and schema: those of the product,
over a catalog in memory (`tests.simulation.recorded`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from connector.runtime.topic_partitions import TopicPartition
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.model import binlog_recordings, recordings, reference, truth, values
from tests.model.binlog_recordings import SERVERS, VARIANTS
from tests.model.binlog_rows import UNTOLD, row_text
from tests.model.recordings import Record
from tests.model.schema_server import serve_schemas
from tests.simulation.recorded import cuts, recorded_sink

TABLES = ("trunc_me", "nokey", "renames", "customers", "evolve", "busy", "types", "done")
BINLOG_CASES = tiered(
    [*product(SERVERS, VARIANTS, TABLES)],
    kept=[
        ("mariadb", "plain", "trunc_me"),
        ("mysql", "schema", "trunc_me"),
        ("mariadb", "avro", "nokey"),
        ("mysql", "avro", "renames"),
    ],
)
POSTGRES_TABLES = (
    "trunc_me",
    "customers",
    "order_lines",
    "full_pk",
    "uuid_key",
    "evolve",
    "Weird_Table",
    "defaults_t",
    "toasty",
    "exotic",
    "debezium_signal",
)
POSTGRES_CASES = tiered(
    [
        (variant, table)
        for variant, table in product((*recordings.ALL_VARIANTS, recordings.AVRO), POSTGRES_TABLES)
        if table in recordings.tables(variant)
    ],
    kept=[
        ("json_schema_envelope", "trunc_me"),
        ("json_envelope", "toasty"),
        ("json_unwrap_tombstone", "customers"),
        ("avro_envelope", "uuid_key"),
    ],
)
# A number that gets another scale is another type where schemas tell it: by default dead letters, and text by this.
SCALED = "debezium.sink.iceberg.decimal-as-text=d"
STEPS = tiered((1, 2, 3, 5), kept=(2,))
LONG = {"debezium_signal": 20}
"""Of a long recording batches have so many times as many records."""
FEW_HALVES, MOST_HALVES = 1, 30
DELETES = ("soft", "hard")
KEEPS = "debezium.sink.iceberg.upsert-keep-deletes"
# Without Debezium's word for them TIME beyond a day has no type; the transform lets no truncate through.
FLATTENED = ("debezium.sink.iceberg.temporal-as-text=t0,t3,t6",)
# What events do not tell: the flattened recordings have no topic of schema changes, and no truncates.
OLD_NAMES = ("was", "is_now")
TRUNCATED = frozenset({"1", "2", "3"})
# Lets no delete through.
DROPS = "json_unwrap_drop"


@pytest.fixture(scope="module")
def registries() -> Iterator[dict[str, str]]:
    """The addresses of what has the schemas of each server's Avro."""
    schemas = {server: binlog_recordings.writer_schemas(server) for server in SERVERS}
    schemas["postgres"] = recordings.writer_schemas()
    with (
        serve_schemas(schemas["mariadb"]) as one,
        serve_schemas(schemas["mysql"]) as other,
        serve_schemas(schemas["postgres"]) as third,
    ):
        yield {"mariadb": one, "mysql": other, "postgres": third}


def _avro(url: str) -> list[str]:
    return [
        f"{side}.converter{option}"
        for side in ("key", "value")
        for option in ("=io.confluent.connect.avro.AvroConverter", f".schema.registry.url={url}")
    ]


def _deletes(how: str) -> list[str]:
    return [f"{KEEPS}={str(how == 'soft').lower()}", "truncate.enabled=true"]


Ends = list[dict[TopicPartition, int]]
"""Where each batch ends."""


@pytest.mark.parametrize(("server", "variant", "table"), BINLOG_CASES)
@pytest.mark.parametrize("deletes", DELETES)
@pytest.mark.parametrize("step", STEPS)
def test_the_tables_are_those_of_the_binlogs_database(
    tmp_path: Path, registries: dict[str, str], server: str, variant: str, table: str, deletes: str, step: int
) -> None:
    """However the events of a MariaDB and a MySQL were cut, each table ends as theirs, but for what is named."""
    records = binlog_recordings.load(server, variant, table)
    ends = list(cuts(records, step, Random(step)))
    _check_binlog_table(tmp_path, registries[server], (server, variant, table), deletes, ends, restarts=step % 2 == 0)


@pytest.mark.parametrize(("server", "variant", "table"), BINLOG_CASES)
@pytest.mark.parametrize("deletes", DELETES)
def test_two_batches_of_the_binlogs_database(
    tmp_path: Path, registries: dict[str, str], server: str, variant: str, table: str, deletes: str
) -> None:
    """Wherever the first of two batches ends, each table ends as the database's."""
    for number, ends in enumerate(_halves(binlog_recordings.load(server, variant, table))):
        folder, case = tmp_path / str(number), (server, variant, table)
        _check_binlog_table(folder, registries[server], case, deletes, ends, restarts=number % 2 == 0)


def _halves(records: Sequence[Record]) -> Iterator[Ends]:
    """Two batches, the first with each number of records, each time of other partitions; of many records some."""
    places, most = range(1, len(records)), MOST_HALVES if THOROUGH else FEW_HALVES
    for place in sorted(Random(len(records)).sample(places, min(most, len(places)))):
        yield list(cuts(records, place, Random(place)))[:1] + list(cuts(records, len(records), Random(0)))


def _check_binlog_table(
    folder: Path, registry: str, case: tuple[str, str, str], deletes: str, ends: Ends, *, restarts: bool
) -> None:
    server, variant, table = case
    folder.mkdir(exist_ok=True)
    records = binlog_recordings.load(server, variant, table)
    side = binlog_recordings.side_topic(server, variant)
    told = [r for r in binlog_recordings.load_all(server, variant) if r.topic == side] if table == "renames" else ()
    options = [*_deletes(deletes), *(_avro(registry) if variant == "avro" else ())]
    options += FLATTENED if variant == "unwrap" else ()
    name = records[0].topic
    with recorded_sink(folder, {name: records}, options, restarts=restarts, schema_changes=told) as sink:
        for end in ends:
            sink.take(end)
        kept = sink.rows(name)
    rows = [row for row in kept if row.get("__deleted") != "true"]
    state = binlog_recordings.state(server, variant, table)
    names = [one for one in state[0] if variant != "plain" or one not in UNTOLD]
    found = [{one: row_text(one, _value(row, one, variant)) for one in names} for row in rows]
    wanted = [{one: row[one] for one in names} for row in state]
    if table == "trunc_me":
        left = TRUNCATED if variant == "unwrap" else _not_told_from_later(server, records, ends)
        found = [row for row in found if row["id"] not in left]
        marked = {str(row["id"]) for row in kept if row not in rows}
        # What comes in a later batch than the truncate that it was before is left out, as late.
        assert marked <= (TRUNCATED - left if deletes == "soft" else set())
    assert sorted(found, key=str) == sorted(wanted, key=str)


def _value(row: dict[str, Any], name: str, variant: str) -> Any:
    value = row.get(name)
    if name != "finally_is" or variant != "unwrap":
        return value
    return next((row[one] for one in (name, *reversed(OLD_NAMES)) if row.get(one) is not None), None)


def _not_told_from_later(server: str, records: Sequence[Record], ends: Sequence[Any]) -> frozenset[str]:
    """MariaDB dates by the second: once the row that came after the truncate is in the table, nothing there tells the
    one of the same second that came before it from that."""
    if server != "mariadb":
        return frozenset()
    batch = {
        number: next(n for n, end in enumerate(ends) if end[r.topic, r.partition] > r.offset)
        for r in records
        for number in (None, 3, 4)
        if _is_of(r, number)
    }
    return frozenset({"3"}) if max(batch[3], batch[4]) < batch[None] else frozenset()


def _is_of(record: Record, number: int | None) -> bool:
    """Tell whether a record is of a key, or the truncate, which has none; keys are JSON or Avro."""
    if record.key is None or number is None:
        return record.key is number
    return record.key.endswith((b'"id":%d}' % number, b'"id":%d}}' % number, bytes([2 * number])))


@pytest.mark.parametrize(("variant", "table"), POSTGRES_CASES)
@pytest.mark.parametrize("deletes", DELETES)
@pytest.mark.parametrize("step", STEPS)
def test_the_tables_are_those_of_postgresql(
    tmp_path: Path, registries: dict[str, str], variant: str, table: str, deletes: str, step: int
) -> None:
    """However the events of a PostgreSQL were cut, each table ends as its own, but for what is named."""
    many = step * LONG.get(table, 1)
    ends = list(cuts(recordings.load(variant, table), many, Random(step)))
    _check_postgres_table(tmp_path, registries["postgres"], (variant, table), deletes, ends, restarts=step % 2 == 0)


@pytest.mark.parametrize(("variant", "table"), POSTGRES_CASES)
@pytest.mark.parametrize("deletes", DELETES)
def test_two_batches_of_postgresql(
    tmp_path: Path, registries: dict[str, str], variant: str, table: str, deletes: str
) -> None:
    """Wherever the first of two batches ends, each table ends as PostgreSQL's."""
    for number, ends in enumerate(_halves(recordings.load(variant, table))):
        folder, case = tmp_path / str(number), (variant, table)
        _check_postgres_table(folder, registries["postgres"], case, deletes, ends, restarts=number % 2 == 0)


@pytest.mark.parametrize("variant", tiered(recordings.ALL_VARIANTS, kept=["json_envelope"]))
@pytest.mark.parametrize("step", STEPS)
def test_a_table_without_key_has_each_event_once(tmp_path: Path, variant: str, step: int) -> None:
    """Events without a key are appended, wherever batches end."""
    records, name = list(recordings.load(variant, "events_nopk")), recordings.topic(variant, "events_nopk")
    with recorded_sink(tmp_path, {name: records}, _deletes("soft"), restarts=step % 2 == 0) as sink:
        for end in cuts(records, step, Random(step)):
            sink.take(end)
        rows = sink.rows(name)
    assert values.differences(reference.append(records), rows, typed=variant in truth.TYPED) == []


def _check_postgres_table(
    folder: Path, registry: str, case: tuple[str, str], deletes: str, ends: Ends, *, restarts: bool
) -> None:
    variant, table = case
    folder.mkdir(exist_ok=True)
    records = list(recordings.load(variant, table))
    texts = f"debezium.sink.iceberg.temporal-as-text={','.join(truth.AS_TEXT)}"
    options = [*_deletes(deletes), texts, *(_avro(registry) if variant == recordings.AVRO else ())]
    options += [SCALED] if table == "evolve" and variant in truth.TYPED else []
    name = recordings.topic(variant, table)
    with recorded_sink(folder, {name: records}, options, restarts=restarts) as sink:
        for end in ends:
            sink.take(end)
        kept = sink.rows(name)
    rows = [row for row in kept if row.get("__deleted") not in ("true", True)]
    shown = [{n: str(v) if isinstance(v, UUID) else v for n, v in row.items()} for row in rows]
    if table == "toasty" and _is_cut_from_its_row(records, ends, drops=variant == DROPS):
        assert {(row["id"],) for row in shown} == {(2,)} | (truth.DROPPED[table] if variant == DROPS else set())
        return
    assert truth.faults(variant, table, shown) == []
    if table == "trunc_me" and "unwrap" not in variant:
        marked = {(row["id"], row["v"]) for row in kept if row not in rows}
        assert marked <= ({(1, "x"), (2, "y"), (3, "z")} if deletes == "soft" else set())


def _is_cut_from_its_row(records: Sequence[Record], ends: Sequence[Any], *, drops: bool) -> bool:
    """Tell whether nobody knows what a row, whose key changed from 1 to 2, does not say (docs/how-to/formats.md).

    It comes in an earlier batch than the last values of its old key, which are in another partition; or these were
    never in the table, as the batch that has them takes the old key away, and ends before the new one comes. `drops`:
    no event takes it away.
    """
    created = next(r for r in records if _is_of(r, 2))
    before = [r for r in records if _is_of(r, 1)]
    values, gone = before[2], before[2 if drops else 3]
    told = (created, values, gone)
    new, known, left = (next(n for n, end in enumerate(ends) if end[r.topic, r.partition] > r.offset) for r in told)
    return new < known or (known == left < new and not drops)
