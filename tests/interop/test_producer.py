"""Iceberg snapshots -> icebridge's source -> Connect worker, with and without Debezium's transform -> PostgreSQL.

Tables hold every type that the JDBC sink takes. It stops at structs, maps and lists of dates, decimals or zoned
timestamps, whoever made the events, so none of these is here. NaN and infinities are not here either: Kafka's
JsonConverter reads their texts as 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from attrs import frozen
from pyspark.sql import SparkSession

from tests.clients.topics import Topics
from tests.interop import produced
from tests.interop.conftest import Replicate
from tests.interop.jdbc_sink import UNWRAP, table_of
from tests.interop.postgres import Postgres
from tests.interop.values import values
from tests.runs.processes import Sink
from tests.runs.sources import Row, SourceWorkspace, make_source_workspace, payload

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]

ROUTES: Mapping[str, Mapping[str, str]] = {"plain": {}, "rows": UNWRAP}
TABLES = (*produced.KINDS, produced.TIMED)
# The last round numbers its events, so that envelopes with a `transaction` block arrive too.
SETTINGS: tuple[Mapping[str, str], ...] = ({}, {}, {"provide.transaction.metadata": "true"})
Held = Mapping[Any, Row]


@frozen
class Round:
    """Where everything was after a round: the rows in Iceberg, and by route and table those in PostgreSQL, by key."""

    wanted: Mapping[str, Held]
    found: Mapping[tuple[str, str], Held]


@pytest.fixture(scope="module")
def source(spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> SourceWorkspace:
    """A source with its defaults, schema blocks included."""
    return make_source_workspace(spark, topics, tmp_path_factory.mktemp("produced"), "produced", {})


@pytest.fixture(scope="module")
def rounds(source: SourceWorkspace, replicate: Replicate, postgres: Postgres) -> tuple[Round, ...]:
    """Each round: change all tables, run the source as users do, let both sinks take what is new."""
    for name, kind in produced.KINDS.items():
        produced.create(source, name, kind)
    produced.create_timed(source)
    done = []
    for number, extra in enumerate(SETTINGS):
        for name in produced.KINDS:
            produced.change(source, name, number)
        produced.change_timed(source, number)
        ended = Sink(source.file(extra), ("--once",)).wait(240)
        assert ended.code == 0, ended.text[-6000:]
        found = dict(_arrived(source, replicate, postgres))
        done.append(Round({name: _keyed(name, _rows(source, name)) for name in TABLES}, found))
    return tuple(done)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_the_sink_holds_the_tables_rows(rounds: tuple[Round, ...], number: int, route: str, table: str) -> None:
    """After the full read and after each round of changes PostgreSQL's rows equal Iceberg's, value by value."""
    wanted, found = rounds[number].wanted[table], rounds[number].found[route, table]
    assert found.keys() == wanted.keys()
    assert found == wanted


def test_the_events_and_the_tables_are_what_they_are_meant_to_be(
    rounds: tuple[Round, ...], source: SourceWorkspace
) -> None:
    """Every topic has reads, creates, updates, deletes and their tombstones; every kind of delete file was made."""
    assert len(rounds) == len(SETTINGS)
    for name in TABLES:
        records = source.records(name)
        count = Counter(payload(r.value)["op"] if r.value is not None else "tombstone" for r in records)
        assert count.keys() == {"r", "c", "u", "d", "tombstone"}, name
        assert count["d"] == count["tombstone"]
        assert {bool(payload(r.value)["transaction"]) for r in records if r.value is not None} == {False, True}
        made: set[str] = set().union(*source.lake().summaries(name, "db"))
        assert (produced.KINDS[name].deletes if name in produced.KINDS else "added-equality-deletes") in made


@pytest.mark.parametrize("route", ROUTES)
def test_the_sink_makes_columns_of_the_tables_types(rounds: tuple[Round, ...], postgres: Postgres, route: str) -> None:
    """Each Iceberg type becomes PostgreSQL's own, a column that was added later included."""
    assert len(rounds) == len(SETTINGS)
    wanted = dict.fromkeys(produced.KINDS, produced.POSTGRES_TYPES) | {produced.TIMED: produced.TIMED_TYPES}
    wanted["rowids"] = {"_row_id": "bigint", **produced.POSTGRES_TYPES}
    assert {name: postgres.types(table_of(route, f"produced.db.{name}")) for name in TABLES} == wanted


def _arrived(
    source: SourceWorkspace, replicate: Replicate, postgres: Postgres
) -> Iterator[tuple[tuple[str, str], Held]]:
    for route, extra in ROUTES.items():
        made = replicate(route, [source.topic(name) for name in TABLES], extra)
        for name in TABLES:
            yield (route, name), _keyed(name, values(postgres, made[source.topic(name)]))


def _rows(source: SourceWorkspace, table: str) -> Iterable[Row]:
    """The table's rows as Iceberg or Spark reads them, with their row ids where these are the key."""
    if table == produced.TIMED:
        return source.lake().rows(table, "db")
    columns = "*" if produced.KINDS[table].keys else "_row_id, *"
    return list(source.spark.sql(f"SELECT {columns} FROM {source.name}.db.{table}").toArrow().to_pylist())


def _keyed(table: str, rows: Iterable[Row]) -> Held:
    """The rows by their key; a key that is there twice is a fault."""
    names = ("id",) if table == produced.TIMED else produced.KINDS[table].key_columns
    listed = [(tuple(row[name] for name in names), row) for row in rows]
    held = dict(listed)
    assert len(held) == len(listed), f"table {table} holds a key twice"
    return held
