"""A table after batches of upserts -> seconds of reads, conversion and rewrite. One Spark session, no Kafka.

The base is written in the order of its keys; the keys of a batch are random. Files are written by the sink's own
writers. A table is rolled back after a conversion, so that each way finds the same.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.maintenance.figures import Cost, Maintenance
from benchmarks.measure import tree_cpu_seconds
from benchmarks.session import SPARK
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write.table_writer import TableWriter
from connector.maintenance.conversion.conversion import convert_deletes
from connector.maintenance.spark_actions import rewrite_data_files
from connector.maintenance.table_history import read_history
from connector.maintenance.table_state import summarize
from connector.runtime.spark.session_builder import build_session
from connector.settings.iceberg.catalog import CatalogSettings
from connector.settings.iceberg.maintenance.policies import RewritePolicy
from connector.settings.iceberg.row_lookup import INDEX_BYTES

CATALOG, SEED, READS, TURNS, LARGE = "maintained", 17, 4, 2, 4
COLUMNS = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.float64()), ("name", pa.string())])
WARM_ROWS, WARM_BATCHES = 200_000, 5
CHUNK, FILE_BYTES = 250_000, 32 * 1024**2
Say = Callable[[str], None]


@attrs.frozen
class Job:
    """What is measured: rows of the table, batches, keys of a batch, format version."""

    rows: int
    batches: int
    changes: int
    version: int


@attrs.frozen(eq=False)
class Bench:
    """A catalog of tables that are measured."""

    spark: SparkSession
    catalog: Catalog
    job: Job
    say: Say

    @staticmethod
    def open(warehouse: Path, job: Job, say: Say) -> Bench:
        """Start Spark."""
        settings = CatalogSettings(CATALOG, {"type": "hadoop", "warehouse": str(warehouse)}, ("default",), {})
        spark = build_session("bench", settings, SPARK)
        return Bench(spark, Catalog(spark, settings), job, say)

    def measure(self) -> Maintenance:
        """Fill both tables, and measure. RuntimeError when rows differ."""
        self._warm_up()
        job = self.job
        table = self._fill("plain", job.rows, job.rows, job.batches)
        large = self._fill("large", LARGE * job.rows, job.rows, job.batches)
        before, right = self._read("plain"), self._sums("plain")
        base = [table.snapshot_id, large.snapshot_id]
        converted, converted_large = [], []
        for turn in range(TURNS):
            if turn:
                self._roll_back(table, base[0])
                self._roll_back(large, base[1])
            converted.append(self._timed("conversion", lambda: convert_deletes(self.spark, table, "bench")))
            converted_large.append(
                self._timed("conversion, large", lambda: convert_deletes(self.spark, large, "bench"))
            )
        convert_bytes, after = _count_written(table), self._read("plain")
        self._check(right)
        self._timed("merging small files", lambda: self._merge(table))
        merged = self._read("plain")
        self._check(right)
        again = [self._convert_again(table, base[0]) for _ in range(TURNS + 1)][1:]
        self._roll_back(table, base[0])
        rewrite = self._timed("rewrite", lambda: self._rewrite("plain"))
        table.refresh()
        self._check(right)
        rewritten = _count_written(table)
        return Maintenance(
            **attrs.asdict(job),
            read_before=before,
            read_after=after,
            read_merged=merged,
            read_fresh=self._read("plain"),
            convert=reduce(Cost.least, converted),
            convert_again=reduce(Cost.least, again),
            convert_large=reduce(Cost.least, converted_large),
            convert_bytes=convert_bytes,
            rewrite=rewrite,
            rewrite_bytes=rewritten,
        )

    def _warm_up(self) -> None:
        """Have Java compile what is measured, the rewrite too."""
        rows = min(self.job.rows, WARM_ROWS)
        table = self._fill("warm", rows, rows, WARM_BATCHES)
        base = table.snapshot_id
        self._timed("warm-up, conversion", lambda: convert_deletes(self.spark, table, "bench"))
        self._roll_back(table, base)
        self._timed("warm-up, rewrite", lambda: self._rewrite("warm"))

    def _fill(self, name: str, rows: int, keys: int, batches: int) -> Table:
        """Make a table of keys from 0 on, and replace rows of the first `keys` keys."""
        properties = {"format-version": str(self.job.version), "write.target-file-size-bytes": str(FILE_BYTES)}
        schema = build_table_schema(COLUMNS, ("id",), frozenset(), nanoseconds=False)
        table, rng = self.catalog.create(name, schema, (), properties), np.random.default_rng(SEED)

        def fill() -> None:
            commit_batch(table, np.arange(rows), 0, replaces=False)
            for turn in range(1, batches + 1):
                commit_batch(table, rng.choice(keys, min(keys, self.job.changes), replace=False), turn, replaces=True)

        self._timed(f"filling {name}", fill)
        return table

    def _roll_back(self, table: Table, snapshot_id: int | None) -> None:
        table.java.manageSnapshots().rollbackTo(snapshot_id).commit()
        table.refresh()

    def _convert_again(self, table: Table, base: int | None) -> Cost:
        """Convert with indexes of the data files' keys, which the first time makes."""
        self._roll_back(table, base)
        convert = partial(convert_deletes, self.spark, table, "bench", index_bytes=INDEX_BYTES.default)
        return self._timed("conversion, with indexes", convert)

    def _merge(self, table: Table) -> None:
        """Merge small files as maintenance does after a conversion."""
        rewrite_data_files(self.spark, table, RewritePolicy(), summarize(read_history(table)), "bench")

    def _rewrite(self, name: str) -> None:
        arguments = f"table => '{CATALOG}.default.{name}', options => map('delete-file-threshold', '1')"
        self.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files({arguments})").collect()

    def _read(self, name: str) -> Cost:
        def read() -> None:
            # Anew each time: a frame that is collected again has what its stages wrote the first time.
            self.spark.table(f"{CATALOG}.`default`.{name}").selectExpr("sum(a)", "sum(b)", "count(name)").collect()

        return reduce(Cost.least, [self._timed(f"reading {name}", read) for _ in range(READS)])

    def _sums(self, name: str) -> Any:
        return self.spark.table(f"{CATALOG}.`default`.{name}").selectExpr("sum(a)", "count(*)").collect()[0]

    def _check(self, right: Any) -> None:
        if (found := self._sums("plain")) != right:
            raise RuntimeError(f"rows changed: {right} became {found}")

    def _timed(self, what: str, call: Callable[[], Any]) -> Cost:
        began, spent = time.monotonic(), tree_cpu_seconds(os.getpid())
        call()
        cost = Cost(time.monotonic() - began, tree_cpu_seconds(os.getpid()) - spent)
        self.say(f"{what}: {cost.text}")
        return cost


def make_rows(keys: np.ndarray, turn: int) -> pa.Table:
    """Return rows of these keys, other ones in each turn."""
    names = pa.array(keys % 100_000).cast(pa.string())
    return pa.Table.from_arrays([pa.array(keys), pa.array(keys * 7 + turn), pa.array(keys / 3.0), names], COLUMNS.names)


def commit_batch(table: Table, keys: np.ndarray, turn: int, *, replaces: bool) -> None:
    """Write rows of these keys, and deletes of what they replace, and commit both."""
    layout = table.layout()
    writer = TableWriter(layout, "bench")
    for start in range(0, len(keys), CHUNK):
        for batch in make_rows(keys[start : start + CHUNK], turn).cast(layout.columns).to_batches():
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


def _count_written(table: Table) -> int:
    """Return how many bytes of files the newest snapshot added."""
    return int(dict(table.java.currentSnapshot().summary()).get("added-files-size", "0"))


def main() -> None:
    """Read a job, write its result."""
    job = json.loads(Path(sys.argv[1]).read_text())
    bench = Bench.open(Path(job["warehouse"]), Job(**job["job"]), lambda text: print(text, flush=True))
    Path(job["result"]).write_text(json.dumps(attrs.asdict(bench.measure())))
    bench.spark.stop()


if __name__ == "__main__":
    main()
