"""a table with 10,000 snapshots -> milliseconds of a poll that finds nothing new, and the requests that it costs.

The history is written by hand: the metadata file of a table with one snapshot, with 9,999 ancestors put before it. The
poll is a step of the program's own feed of that table, once over the JDBC catalog of all cases and once over a REST
catalog of the benchmark, which counts requests.
"""

from __future__ import annotations

import json
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from benchmarks.generate import VALUE_COLUMNS
from benchmarks.metadata import local_path
from benchmarks.session import CATALOG, SPARK, catalog_properties, qualified, sql_type
from benchmarks.source.plan import NAMESPACE, POLLS, PREFIX, SNAPSHOTS, table_name
from benchmarks.source.rest import RestCatalog
from benchmarks.source.tables import create, load
from connector.iceberg.catalog.snapshots import SnapshotHistory
from connector.settings.source.settings import load_source
from connector.source.factory import build_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from connector.source.table_capture import TableCapture

_SEED, _OLD = "young", "old"
_REST = "rest"


def measure_idle(spark: SparkSession, warehouse: Path, bootstrap: str) -> dict[str, Any]:
    """Milliseconds of each idle poll by catalog, and the REST requests per poll."""
    metadata = aged(spark)
    where = f"table => '{CATALOG}.{table_name(_OLD)}', metadata_file => '{metadata}'"
    spark.sql(f"CALL `{CATALOG}`.system.register_table({where})")
    file = warehouse.parent / "source-idle.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties(warehouse, bootstrap).items()))
    feed = build_tables(spark, load_source([file], environ={})).open((NAMESPACE,), _OLD)
    assert feed is not None
    feed.step(pinned=False)  # the first one stores where changes begin
    local = polls(feed)
    with RestCatalog(NAMESPACE, _OLD, metadata) as server:
        for key, value in server.spark_settings(_REST).items():
            spark.conf.set(key, value)
        table = load(spark, table_name(_OLD), _REST)
        access = attrs.evolve(feed.access, table=table, snapshots=SnapshotHistory(spark, table))
        remote = attrs.evolve(feed, access=access)
        polls(remote, 3)
        before = server.requests
        rest = polls(remote)
        requests = (server.requests - before) / len(rest)
    return {"snapshots": SNAPSHOTS, "jdbc_ms": local, "rest_ms": rest, "requests": requests}


def polls(feed: TableCapture, count: int = POLLS) -> list[float]:
    """Milliseconds of each of some steps that find nothing to do."""
    times = []
    for _ in range(count):
        began = time.monotonic()
        worked = feed.step(pinned=False)
        times.append((time.monotonic() - began) * 1000)
        assert not worked
    return times


def properties(warehouse: Path, bootstrap: str) -> dict[str, str]:
    """A source that reads changes from now on."""
    options = {
        "connector.class": "IcebergSource",
        "name": "source-idle",
        "bootstrap.servers": bootstrap,
        "topic.prefix": PREFIX,
        "table.include.list": table_name(_OLD),
        "snapshot.mode": "no_data",
        "iceberg.catalog.catalog-name": CATALOG,
        "iceberg.catalog.table-namespace": NAMESPACE,
    }
    return options | {f"iceberg.catalog.{key}": value for key, value in catalog_properties(warehouse).items()} | SPARK


def aged(spark: SparkSession) -> Path:
    """Write metadata of a table with 10,000 snapshots; all of them share the only one's manifests."""
    create(spark, table_name(_SEED), 2, {})
    nulls = [f"CAST(NULL AS {sql_type(name)}) AS `{name}`" for name in VALUE_COLUMNS[1:]]
    spark.range(1).selectExpr("id", *nulls).writeTo(qualified(table_name(_SEED))).append()
    location = str(load(spark, table_name(_SEED)).java.operations().current().metadataFileLocation())
    file = local_path(location)
    document = json.loads(file.read_text()) | {"table-uuid": str(uuid.uuid4())}
    newest = document["snapshots"][0]
    first_id = 1_000_000_000_000_000_000
    chain = [
        newest
        | {
            "snapshot-id": first_id + place,
            "sequence-number": place + 1,
            "timestamp-ms": newest["timestamp-ms"] - (SNAPSHOTS - 1 - place) * 1000,
            **({"parent-snapshot-id": first_id + place - 1} if place else {}),
        }
        for place in range(SNAPSHOTS)
    ]
    head = chain[-1]["snapshot-id"]
    document |= {
        "snapshots": chain,
        "snapshot-log": [{"timestamp-ms": s["timestamp-ms"], "snapshot-id": s["snapshot-id"]} for s in chain],
        "current-snapshot-id": head,
        "refs": {"main": {"snapshot-id": head, "type": "branch"}},
        "last-sequence-number": SNAPSHOTS,
    }
    copy = file.with_name(f"{SNAPSHOTS}-{document['table-uuid']}.metadata.json")
    copy.write_text(json.dumps(document))
    return copy
