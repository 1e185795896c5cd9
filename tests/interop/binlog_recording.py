"""a server and the Connect worker -> the story's records of each variant, and what they have to become."""

from __future__ import annotations

import base64
import gzip
import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.clients.topics import Topics
from tests.interop.binlog_connectors import VARIANTS, connector, prefix_of, topics_of
from tests.interop.binlog_server import DATABASE, BinlogServer
from tests.interop.binlog_story import (
    CHANGES,
    LAST,
    TABLES,
    change_during_snapshot,
    request_snapshot,
    setup,
    signals_table,
    wait_for_lock,
)
from tests.interop.connect import Connect
from tests.model.binlog_rows import EXPRESSIONS, exact_text
from tests.model.recordings import Record

WAIT_S = 120.0
CHUNK_ROWS = 12
"""So many rows of an incremental snapshot are at least waited for."""
Recorded = Mapping[str, Sequence[Record]]


def record(
    server: BinlogServer, connect: Connect, topics: Topics, folder: Path, bootstrap_servers: str, registry_url: str
) -> dict[str, list[Record]]:
    """Have a connector of each variant tell the story; variant -> its records, topic by topic."""
    server.run(setup(server, list(VARIANTS)))
    counts = {topic: 1 if topic.endswith(".done") else 3 for name in VARIANTS for topic in topics_of(server, name)}
    counts |= {f"{prefix_of(server, name)}.{DATABASE}.{signals_table(name)}": 1 for name in VARIANTS}
    # Debezium's schema changes and transactions are in order only in a single partition.
    counts |= {prefix_of(server, name): 1 for name in VARIANTS}
    topics.create(counts)
    for number, name in enumerate(VARIANTS):
        connect.create(prefix_of(server, name), connector(name, server, folder, bootstrap_servers, registry_url))
        change_during_snapshot(server, number)
    for name in VARIANTS:
        _wait(server, connect, topics, name, "done", b"", 1)
    server.run(CHANGES)
    wait_for_lock(server)
    for name in VARIANTS:
        request_snapshot(server, name)
        _wait(server, connect, topics, name, "busy", b"incremental", CHUNK_ROWS)
    server.run(f"INSERT INTO done VALUES ({LAST});")
    for name in VARIANTS:
        _wait(server, connect, topics, name, "done", b"", 2)
        connect.delete(prefix_of(server, name))
    return {name: [r for topic in topics_of(server, name) for r in topics.read(topic)] for name in VARIANTS}


def _wait(
    server: BinlogServer, connect: Connect, topics: Topics, variant: str, table: str, word: bytes, count: int
) -> None:
    """Wait for so many records of a table with this word in their values."""
    prefix, limit = prefix_of(server, variant), time.monotonic() + WAIT_S
    while sum(word in (r.value or b"") for r in topics.read(f"{prefix}.{DATABASE}.{table}")) < count:
        connect.check(prefix)
        if time.monotonic() > limit:
            raise TimeoutError(f"{prefix} did not get as far as {count} records of {table}:\n{connect.log_end(60)}")
        time.sleep(0.5)


def read_truth(server: BinlogServer, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a table in the server's words, with as many digits as ours have."""
    rows = server.rows(table, {name: EXPRESSIONS.get(name, f"`{name}`") for name in columns})
    return [{name: exact_text(name, text) for name, text in row.items()} for row in rows]


def write_fixtures(folder: Path, server: BinlogServer, recorded: Recorded, registry_url: str) -> None:
    """Keep the records, one a line as in tests/fixtures, the rows at the end, and the schemas of Avro's ids."""
    home = folder / server.name
    home.mkdir(parents=True, exist_ok=True)
    for variant, records in recorded.items():
        text = "".join(f"{_line(one)}\n" for one in records)
        (home / f"{variant}.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    for table in TABLES:
        rows = read_truth(server, table, server.columns(table))
        (home / f"{table}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    ids = {int.from_bytes(part[1:5], "big") for r in recorded["avro"] for part in (r.key, r.value) if part}
    schemas = {number: json.loads(_fetch_schema(registry_url, number)) for number in sorted(ids)}
    packed = gzip.compress(json.dumps(schemas).encode(), mtime=0)
    (home / "avro_schemas_by_id.json.gz").write_bytes(packed)


def _line(record: Record) -> str:
    key, value = (None if part is None else base64.b64encode(part).decode() for part in (record.key, record.value))
    headers = [[n, None if v is None else base64.b64encode(v).decode()] for n, v in record.headers]
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    return json.dumps({**place, "timestamp": record.timestamp_ms, "headers": headers, "key": key, "value": value})


def _fetch_schema(registry_url: str, number: int) -> str:
    with urllib.request.urlopen(f"{registry_url}/schemas/ids/{number}", timeout=30) as answer:
        return str(json.load(answer)["schema"])
