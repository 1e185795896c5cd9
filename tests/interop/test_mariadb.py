"""a real MariaDB -> Debezium's MariaDB connector -> our sink -> the rows that the database has."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeWorkspace, OpenLake
from tests.interop.connect import Connect
from tests.interop.mariadb import DATABASE, MariaDb
from tests.interop.mariadb_changes import CHANGES, SETUP, SIDE_TOPICS, TABLES, VARIANTS, connector
from tests.model.mariadb_rows import EXPRESSIONS, UNTOLD, exact_text, row_text
from tests.model.recordings import Record
from tests.servers import SharedBroker
from tests.topics import Topics

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]
WAIT_S = 120.0


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDb]:
    """One server for the story."""
    with MariaDb() as running:
        yield running


@pytest.fixture(scope="module")
def recorded(
    mariadb: MariaDb, connect: Connect, broker: SharedBroker, topics: Topics, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Record]]:
    """The story, told by a connector of each variant; variant -> its records."""
    mariadb.run(SETUP)
    topics.create({f"{name}.{DATABASE}.{table}": 1 if table == "done" else 3 for name in VARIANTS for table in TABLES})
    folder = tmp_path_factory.mktemp("mariadb")
    for name in VARIANTS:
        connect.create(name, connector(name, mariadb, folder, broker.bootstrap_servers))
    for name in VARIANTS:
        _wait_rows(connect, topics, name, 1)
    mariadb.run(CHANGES)
    for name in VARIANTS:
        _wait_rows(connect, topics, name, 2)
        connect.delete(name)
    return {name: [r for topic in _topics(name) for r in topics.read(topic)] for name in VARIANTS}


def _topics(name: str) -> list[str]:
    return [*(f"{name}.{DATABASE}.{table}" for table in TABLES), *SIDE_TOPICS.get(name, ())]


def _wait_rows(connect: Connect, topics: Topics, name: str, count: int) -> None:
    limit = time.monotonic() + WAIT_S
    while len(topics.read(f"{name}.{DATABASE}.done")) < count:
        connect.check(name)
        if time.monotonic() > limit:
            raise TimeoutError(f"{name} did not get as far as row {count} of done:\n{connect.log_end(60)}")
        time.sleep(0.5)


@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("variant", ["schema", "plain"])
def test_a_real_mariadb_arrives(
    recorded: dict[str, list[Record]],
    mariadb: MariaDb,
    make_workspace: MakeWorkspace,
    lake: OpenLake,
    variant: str,
    deletes: str,
) -> None:
    """Every table ends as the database has it, in the default mode and with hard deletes; nothing is a dead letter."""
    if (folder := os.environ.get("ICEBRIDGE_RECORD")) and deletes == "hard":
        _write(Path(folder), variant, recorded[variant], mariadb)
    names = _topics(variant)
    extra = (
        {"topics": ",".join(names), "truncate.enabled": "true"} if deletes == "hard" else {"topics": ",".join(names)}
    )
    extra |= {"debezium.sink.iceberg.upsert-keep-deletes": str(deletes == "soft").lower()}
    space = make_workspace(f"mariadb_{variant}_{deletes}", extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    assert not run.total("dead_letters"), run.text[-6000:]
    held = lake(space)
    assert held.names() == {f"{variant}_{DATABASE}_{table}" for table in TABLES}
    for table in TABLES:
        columns = [name for name in _columns(mariadb, table) if variant != "plain" or name not in UNTOLD]
        found = [row for row in held.rows(f"{variant}_{DATABASE}_{table}") if row.get("__deleted") != "true"]
        if (table, deletes) == ("trunc_me", "soft"):
            found = [row for row in found if row["id"] > 3]
        shown = sorted([{n: row_text(n, row[n]) for n in columns} for row in found], key=str)
        assert shown == sorted(_truth(mariadb, table, columns), key=str), table


def _columns(mariadb: MariaDb, table: str) -> list[str]:
    return mariadb.run(
        "SELECT column_name FROM information_schema.columns "
        f"WHERE table_schema = '{DATABASE}' AND table_name = '{table}' ORDER BY ordinal_position;"
    ).split()


def _truth(mariadb: MariaDb, table: str, columns: list[str]) -> list[dict[str, Any]]:
    rows = mariadb.rows(table, {name: EXPRESSIONS.get(name, f"`{name}`") for name in columns})
    return [{name: exact_text(name, text) for name, text in row.items()} for row in rows]


def _write(folder: Path, variant: str, records: list[Record], mariadb: MariaDb) -> None:
    """Keep the records, one a line as in tests/fixtures, and the rows at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for r in records:
        key, value = (None if part is None else base64.b64encode(part).decode() for part in (r.key, r.value))
        headers = [[n, None if v is None else base64.b64encode(v).decode()] for n, v in r.headers]
        line = {"topic": r.topic, "partition": r.partition, "offset": r.offset, "timestamp": r.timestamp_ms}
        lines.append(json.dumps({**line, "headers": headers, "key": key, "value": value}))
    (folder / f"{variant}.jsonl").write_text("\n".join(lines))
    for table in TABLES:
        rows = _truth(mariadb, table, _columns(mariadb, table))
        (folder / f"{table}.json").write_text("\n".join(map(json.dumps, rows)))
