"""A table after batches of upserts -> seconds of reads before and after conversion, and of conversion and rewrite.

`python -m benchmarks.maintenance --rows 5000000 --batches 50 --changes 100000` prints one JSON document. The rows of a
batch have random keys; files are written by the sink's own writers, without Kafka.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import orjson
import pyarrow as pa

from benchmarks.session import SPARK
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.types.arrow_types import build_table_schema
from connector.iceberg.write.table_writer import TableWriter
from connector.maintenance.conversion.conversion import convert_deletes
from connector.runtime.spark.session_builder import build_session
from connector.settings.iceberg.catalog import CatalogSettings

if TYPE_CHECKING:
    from connector.iceberg.catalog.table import Table

CATALOG, SEED, READS = "maintained", 17, 3
COLUMNS = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("name", pa.string())])
CHUNK = 250_000


def make_rows(keys: np.ndarray, turn: int) -> pa.Table:
    """Return rows of these keys, other ones in each turn."""
    names = pa.array(keys % 100_000).cast(pa.string())
    return pa.Table.from_arrays([pa.array(keys), pa.array(keys * 7 + turn), pa.array(keys / 3.0), names], COLUMNS.names)


def commit_batch(table: Table, keys: np.ndarray, turn: int, *, replaces: bool) -> None:
    """Write rows of these keys, and deletes of what they replace, and commit both."""
    layout = table.layout()
    writer = TableWriter(layout, "bench")
    for batch in make_rows(keys, turn).cast(layout.columns).to_batches(CHUNK):
        writer.write_rows(batch)
    if replaces:
        writer.write_equality_deletes(pa.RecordBatch.from_arrays([pa.array(keys)], schema=pa.schema(layout.key_fields)))
    update = table.java.newRowDelta() if replaces else table.java.newAppend()
    descriptions = list(writer.close())
    for description, file in zip(descriptions, table.content_files(descriptions), strict=True):
        if not description.is_data:
            update.addDeletes(file)
        elif replaces:
            update.addRows(file)
        else:
            update.appendFile(file)
    update.commit()
    table.refresh()


def measure(call: Callable[[], Any]) -> float:
    """Return how many seconds a call takes."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


def count_written(table: Table) -> int:
    """Return how many bytes of files the newest snapshot added."""
    return int(dict(table.java.currentSnapshot().summary()).get("added-files-size", "0"))


@click.command()
@click.option("--rows", default=5_000_000)
@click.option("--batches", default=50)
@click.option("--changes", default=100_000, help="Keys of a batch.")
@click.option("--version", default=3)
def main(rows: int, batches: int, changes: int, version: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="icebridge-bench-") as folder:
        properties = {"type": "hadoop", "warehouse": str(Path(folder).resolve())}
        settings = CatalogSettings(CATALOG, properties, ("default",), {})
        spark = build_session("bench", settings, SPARK)
        catalog = Catalog(spark, settings)
        schema = build_table_schema(COLUMNS, ("id",), frozenset(), nanoseconds=False)

        def fill(name: str) -> Table:
            table = catalog.create(name, schema, (), {"format-version": str(version)})
            rng = np.random.default_rng(SEED)
            commit_batch(table, np.arange(rows), 0, replaces=False)
            for turn in range(1, batches + 1):
                commit_batch(table, rng.choice(rows, changes, replace=False), turn, replaces=True)
            return table

        def read(name: str) -> float:
            frame = spark.table(f"{CATALOG}.`default`.{name}")
            return min(
                measure(lambda: frame.selectExpr("sum(a)", "sum(b)", "count(name)").collect()) for _ in range(READS)
            )

        def checksum(name: str) -> Any:
            return spark.table(f"{CATALOG}.`default`.{name}").selectExpr("sum(a)", "count(*)").collect()[0]

        table = fill("converted")
        fill("rewritten")
        found: dict[str, Any] = {"rows": rows, "batches": batches, "changes": changes, "version": version}
        before = checksum("converted")
        found["read_before_s"] = read("converted")
        commit_batch(
            catalog.create("warm", schema, (), {"format-version": str(version)}), np.arange(9), 0, replaces=True
        )
        found["convert_s"] = measure(lambda: convert_deletes(spark, table, "bench"))
        found["convert_bytes"] = count_written(table)
        found["read_after_s"] = read("converted")
        arguments = "table => 'default.rewritten', options => map('delete-file-threshold', '1')"
        call = f"CALL {CATALOG}.system.rewrite_data_files({arguments})"
        found["rewrite_s"] = measure(lambda: spark.sql(call).collect())
        rewritten = catalog.load("rewritten")
        assert rewritten is not None
        found["rewrite_bytes"] = count_written(rewritten)
        found["read_fresh_s"] = read("rewritten")
        assert before == checksum("converted") == checksum("rewritten")
        found["convert_to_rewrite"] = found["convert_s"] / found["rewrite_s"]
        found["bytes_to_rewrite"] = found["convert_bytes"] / max(1, found["rewrite_bytes"])
        found["read_after_to_fresh"] = found["read_after_s"] / found["read_fresh_s"]
        click.echo(orjson.dumps(found).decode())
        spark.stop()


if __name__ == "__main__":
    main()
