"""Keys of a type, and changes of them -> a table that the sink's own writers and commits have filled, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, evolve, frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.commit.commit import PendingCommit, commit_files
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit
from connector.iceberg.java import jvm, to_string_array
from connector.iceberg.keys.file_key_bounds import widen_bounds
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write.table_writer import TableWriter
from connector.settings.iceberg.catalog import CatalogSettings
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from connector.settings.iceberg.row_lookup import RowLookupSettings
from connector.sink.destinations.iceberg.write.file_writer import write_upserts
from connector.sink.destinations.iceberg.write_modes.registry import WRITE_MODES
from connector.sink.destinations.iceberg.write_modes.row_lookup import collect_keys
from connector.sink.fold.fold import fold
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from connector.sink.model.plan import TablePlan
from serde.events.positions.log_positions import NO_VALUE, unknown_positions
from tests.clients.lake import Lake
from tests.model.key_types import KeyType

KEYS, BATCHES = 40, 3


MODES: tuple[str, ...] = ("equality-delete", "position-delete", "copy-on-write")


PARTITIONS: tuple[PartitionTerm | None, ...] = (
    None,
    PartitionTerm("p", "identity"),
    PartitionTerm("k", "bucket", 3),
    PartitionTerm("k", "identity"),
    PartitionTerm("k", "truncate", 2),
    PartitionTerm("k", "day"),
    PartitionTerm("k", "month"),
)


@frozen
class Case:
    """How a table is written."""

    kind: KeyType
    mode: str
    version: int
    format: str
    partition: PartitionTerm | None
    seed: int = 0
    catalog: str = "key_types"

    @property
    def name(self) -> str:
        """A name of its own."""
        by = "none" if self.partition is None else f"{self.partition.transform}_{self.partition.column}"
        return f"{self.kind.name}_{self.mode.replace('-', '_')}_v{self.version}_{self.format}_{by}_{self.seed}"

    @property
    def table(self) -> str:
        """The name for SQL."""
        return f"{self.catalog}.`default`.`{self.name}`"

    @property
    def possible(self) -> bool:
        """Whether there are such tables, and readers that read them."""
        kind, how = self.kind, None if self.partition is None else self.partition.transform
        fits = how is None or (self.partition is not None and self.partition.column == "p") or kind.partitions(how)
        by_key = self.mode != "equality-delete"
        if self.mode == "equality-delete" and not kind.in_equality_deletes:
            return False
        if by_key and self.format == "avro" and not kind.in_spark:
            return False
        return fits and (self.version == 3 or not kind.nanoseconds)


@define
class Written:
    """A table on its way, beside the model of its rows: key -> value."""

    spark: SparkSession
    case: Case
    table: Table
    model: dict[Any, int]
    known: KeyBounds = KeyBounds.nothing()
    stored: LastCommit = LastCommit()

    @property
    def layout(self) -> TableLayout:
        """The table's, with its key."""
        return evolve(self.table.layout(), id_columns=("k",))

    def batch(
        self,
        changes: dict[Any, int | None],
        rng: Random,
        how: str | None = None,
        lookup: str = "key-index",
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """Take in one change per key; None deletes. `how` is the write mode, the case's by default; `meanwhile` happens
        right before the commit.
        """
        layout, how = self.layout, how or self.case.mode
        mode = WRITE_MODES[how]
        plan = TablePlan(
            0,
            layout,
            upsert=True,
            keep_deletes=False,
            base=self.table.snapshot_id,
            known_keys=self.known if how == "equality-delete" else KeyBounds(),
            write_mode=how,
            needs_row_lookup=mode.looks_up_rows,
            row_lookup=RowLookupSettings(lookup),
        )
        folded = fold([self._part(changes, rng)], layout.keys)
        writer = TableWriter(layout, "test")
        handed = list(write_upserts(writer, folded, plan))
        files = list(writer.close())
        hits = None
        if plan.needs_row_lookup:
            hits, more = mode.find_rows(self.spark, self.table, plan, collect_keys(self.spark, handed))
            files += more
        pending = PendingCommit(
            files,
            KafkaOffsets("c", {}, {("t", 0): 1}),
            self.stored,
            plan.base,
            plan.known_keys.is_complete,
            True,
            {},
            hits,
            mode.apply,
        )
        meanwhile()
        self.stored = commit_files(self.table, pending, "test").stored
        self.known = widen_bounds(self.known, layout, files)
        for key, value in changes.items():
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    def append(self, rows: Sequence[tuple[Any, int]], rng: Random) -> None:
        """Add rows, whatever there is under their keys."""
        writer = TableWriter(self.layout, "test")
        for key, value in rows:
            writer.write_rows(self._part({key: value}, rng).rows)
        pending = PendingCommit(
            list(writer.close()),
            KafkaOffsets("c", {}, {("t", 0): 1}),
            self.stored,
            self.table.snapshot_id,
            False,
            False,
        )
        self.stored = commit_files(self.table, pending, "test").stored

    def _part(self, changes: dict[Any, int | None], rng: Random) -> ChangeBatch:
        count = len(changes)
        numbers = [0 if value is None else value for value in changes.values()]
        places = [rng.randrange(2) for _ in changes]
        keys = [-key if isinstance(key, float) and not key and value is None else key for key, value in changes.items()]
        columns = [self.case.kind.array(keys), pa.array(places, pa.int32()), pa.array(numbers, pa.int64())]
        rows = pa.RecordBatch.from_arrays(columns, schema=self.layout.rows)
        none, at = np.full(count, NO_VALUE), np.arange(count)
        order = ChangeOrder(
            np.zeros(count, np.int64), at, at, none, unknown_positions(count), np.full(count, ord("u"), np.uint8)
        )
        return ChangeBatch(rows, order, np.array([v is None for v in changes.values()]), np.ones(count, np.bool_))


Opened = tuple[Catalog, Lake]
"""A catalog for the sink's code, and the same for readers."""


def open_warehouse(spark: SparkSession, name: str, folder: Path) -> Opened:
    """A catalog whose tables are found by their folders."""
    return open_catalog(spark, name, {"type": "hadoop", "warehouse": str(folder)})


def open_catalog(spark: SparkSession, name: str, properties: Mapping[str, str]) -> Opened:
    """A catalog of these properties of Iceberg's."""
    lake = Lake(spark, name, properties)
    return Catalog(spark, CatalogSettings(name, properties, ("default",), {})), lake


def new_table(spark: SparkSession, catalog: Catalog, case: Case) -> Written:
    """Make a table without rows."""
    columns = pa.schema([("k", case.kind.arrow), ("p", pa.int32()), ("v", pa.int64())])
    schema = build_table_schema(columns, ("k",) if case.kind.identifies else (), frozenset(), nanoseconds=True)
    properties = {"format-version": str(case.version), "write.format.default": case.format}
    by = () if case.partition is None else (case.partition,)
    return Written(spark, case, catalog.create(case.name, schema, by, properties), {})


def fill(spark: SparkSession, catalog: Catalog, case: Case, batches: int = BATCHES) -> Written:
    """Make a table, and take in batches of changes."""
    rng = Random(f"{case.name}")
    written = new_table(spark, catalog, case)
    pool, number = case.kind.values(rng, KEYS), 0
    for turn in range(batches):
        changes: dict[Any, int | None] = {}
        for key in rng.sample(pool, len(pool) // 2 if turn else len(pool) * 3 // 4):
            number += 1
            changes[key] = None if turn and rng.random() < 0.3 else number
        written.batch(changes, rng)
    return written


def values_by_iceberg(spark: SparkSession, lake: Lake, case: Case, where: Any = None) -> list[int]:
    """The values that Iceberg's generic reader gives."""
    java = jvm(spark).org.apache.iceberg
    read = java.data.IcebergGenerics.read(lake.java(case.name)).select(to_string_array(spark, ("v",)))
    scan = (read if where is None else read.where(where)).build()
    found = java.relocated.com.google.common.collect.Lists.newArrayList(scan)
    scan.close()
    return sorted(record.getField("v") for record in found)


def values_by_spark(spark: SparkSession, case: Case) -> list[int]:
    """The values that Spark gives."""
    return values_of_all(spark, [case])[case.name]


def values_of_all(spark: SparkSession, cases: Iterable[Case]) -> dict[str, list[int]]:
    """The values that Spark gives of each table that it reads, in one query."""
    read = [case for case in cases if case.kind.in_spark]
    found: dict[str, list[int]] = {case.name: [] for case in read}
    frames = [spark.table(case.table).select(F.lit(case.name), "v") for case in read]
    for name, value in reduce(DataFrame.unionAll, frames).collect() if frames else ():
        found[name].append(value)
    return {name: sorted(values) for name, values in found.items()}


def places_of(spark: SparkSession, case: Case) -> list[Any]:
    """Each file with its sequence numbers, and the snapshot it came with."""
    columns = "data_file.file_path, sequence_number, file_sequence_number, snapshot_id"
    return sorted(map(tuple, spark.sql(f"SELECT {columns} FROM {case.table}.entries WHERE status < 2").collect()))


def row_ids_of(spark: SparkSession, case: Case) -> dict[int, int]:
    """The row id of each value."""
    return dict(map(tuple, spark.sql(f"SELECT v, _row_id FROM {case.table}").collect()))


def summary_of(written: Written) -> dict[str, str]:
    """The newest snapshot's summary, with its operation."""
    snapshot = written.table.java.currentSnapshot()
    return {"operation": str(snapshot.operation()), **{str(k): str(v) for k, v in dict(snapshot.summary()).items()}}


def check_rows(spark: SparkSession, lake: Lake, written: Written) -> None:
    """Every reader gives the model's rows."""
    case, right = written.case, sorted(written.model.values())
    assert values_by_iceberg(spark, lake, case) == right
    if case.kind.in_spark:
        assert values_by_spark(spark, case) == right
    if case.version == 2 and case.format == "parquet":
        assert sorted(written.table.metadata().scan().to_arrow()["v"].to_pylist()) == right
