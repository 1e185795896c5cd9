"""Events of a real MariaDB and MySQL in batches cut at every point -> the rows that they had, by the sink's batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

import pytest

from tests.harness.tiers import tiered
from tests.model import binlog_recordings
from tests.model.binlog_recordings import SERVERS, VARIANTS
from tests.model.binlog_rows import UNTOLD, row_text
from tests.model.recordings import in_batches
from tests.model.schema_server import serve_schemas
from tests.unit.local_sink import local_sink

TABLES = ("types", "customers", "evolve", "busy")
CASES = tiered(
    [*product(SERVERS, VARIANTS, TABLES)],
    kept=[("mariadb", "unwrap", "busy"), ("mysql", "schema", "customers"), ("mysql", "avro", "evolve")],
)
KEEPS = "debezium.sink.iceberg.upsert-keep-deletes"
# Flattened events have no connector but in headers, which this sink has not.
OPTIONS = {"unwrap": ["debezium.sink.iceberg.temporal-as-text=t0,t3,t6", "truncate.enabled=false"]}


@pytest.fixture(scope="module")
def registries() -> Iterator[dict[str, str]]:
    """The addresses of what has the schemas of each server's Avro."""
    schemas = [binlog_recordings.writer_schemas(server) for server in SERVERS]
    with serve_schemas(schemas[0]) as one, serve_schemas(schemas[1]) as other:
        yield dict(zip(SERVERS, (one, other), strict=True))


def _properties(server: str, variant: str, table: str, url: str) -> list[str]:
    found = [f"topics={binlog_recordings.topic(server, variant, table)}", "errors.tolerance=none"]
    if variant == "avro":
        for side in ("key", "value"):
            found.append(f"{side}.converter=io.confluent.connect.avro.AvroConverter")
            found.append(f"{side}.converter.schema.registry.url={url}")
    return [*found, *OPTIONS.get(variant, [])]


@pytest.mark.parametrize(("server", "variant", "table"), CASES)
@pytest.mark.parametrize("keeps", ["true", "false"])
@pytest.mark.parametrize("step", tiered((1, 2, 7), kept=(2,)))
def test_the_rows_are_the_databases(
    tmp_path: Path, registries: dict[str, str], server: str, variant: str, table: str, keeps: str, step: int
) -> None:
    """With soft and with hard deletes a table ends as the database's did, however the events were cut into batches."""
    records = binlog_recordings.load(server, variant, table)
    properties = _properties(server, variant, table, registries[server])
    sink = local_sink(tmp_path, [*properties, f"{KEEPS}={keeps}"])
    for batch in in_batches(records, step, Random(step)):
        sink.process(*(((r.topic, r.partition), r.key, r.value) for r in batch))
    (name,) = sink.destination.rows
    truth = binlog_recordings.state(server, variant, table)
    names = [one for one in truth[0] if variant != "plain" or one not in UNTOLD]
    live = [row for row in sink.rows(name) if row.get("__deleted") != "true"]
    # A row from before a column was added has none here, which a table reads as null.
    found = [{one: row_text(one, row.get(one)) for one in names} for row in live]
    assert sorted(found, key=str) == sorted([{one: row[one] for one in names} for row in truth], key=str)
