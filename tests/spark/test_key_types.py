"""Keys of every type, through the sink's own writers and commits -> what Iceberg's readers give: the model's rows."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from attrs import define, evolve, frozen
from pyiceberg.expressions import EqualTo
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.commit.commit import PendingCommit, commit_files
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit
from connector.iceberg.java import jvm, to_string_array
from connector.iceberg.keys.file_key_bounds import read_key_bounds, widen_bounds
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.values.single_values import encode_json
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
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.model.key_types import KEY_TYPES, KeyType

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROUNDS = int(os.environ.get("ICEBRIDGE_KEY_TYPES", "1"))
"""Rounds of the whole law in `make test-all`, each with other values."""
KEYS, BATCHES, ASKED = 40, 3, 3
THREADS = 6
"""Tables that are written side by side: most of a small table's time is waiting."""
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
_IN_PYICEBERG = ("int", "long", "string", "binary", "uuid", "decimal_38_10", "decimal_9_2")


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


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Catalog, Lake]:
    """A catalog for the sink's code, and the same for readers."""
    home: Path = tmp_path_factory.mktemp("key_types")
    properties = {"type": "hadoop", "warehouse": str(home), "io-impl": "org.apache.iceberg.io.ResolvingFileIO"}
    lake = Lake(spark, "key_types", properties)
    return Catalog(spark, CatalogSettings("key_types", properties, ("default",), {})), lake


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


def _where(written: Written, key: Any) -> Any:
    """A filter for one key."""
    value = encode_json(written.layout.schema.find_type("k"), key)
    return written.table.expression(orjson.dumps({"type": "eq", "term": "k", "value": value}).decode())


def possible(kind: KeyType) -> list[Case]:
    """Every way to write a table with such a key."""
    ways = product(MODES, (2, 3), ("parquet", "avro"), PARTITIONS)
    return [case for way in ways if (case := Case(kind, *way)).possible]


def a_few() -> Iterator[Case]:
    """Of each type the default, or one of the other ways to write a table."""
    for turn, kind in enumerate(KEY_TYPES):
        ways = possible(kind)
        yield ways[turn * 11 % len(ways)] if turn % 3 else ways[0]


def differences(
    spark: SparkSession, tables: tuple[Catalog, Lake], cases: Sequence[Case], batches: int = BATCHES, asked: int = ASKED
) -> dict[str, str]:
    """Write the tables, and compare what readers give with the model: case -> what is wrong with it."""
    catalog, lake = tables
    with ThreadPoolExecutor(THREADS) as pool:
        filled = list(pool.map(lambda case: fill(spark, catalog, case, batches), cases))
        read = values_of_all(spark, cases)
        told = pool.map(lambda written: _difference(lake, written, read.get(written.case.name), asked), filled)
        return {written.case.name: one for written, one in zip(filled, told, strict=True) if one}


def _difference(lake: Lake, written: Written, by_spark: list[int] | None, asked: int) -> str:
    spark, case, rows = written.spark, written.case, written.model
    wanted = sorted(rows.values())
    if values_by_iceberg(spark, lake, case) != wanted:
        return "read by Iceberg"
    if by_spark is not None and by_spark != wanted:
        return "read by Spark"
    if case.mode == "equality-delete" and read_key_bounds(written.table, written.layout) != written.known:
        return "the bounds of keys"
    for key in sorted(rows)[:: max(1, len(rows) // asked)] if case.kind.in_filters else ():
        if values_by_iceberg(spark, lake, case, _where(written, key)) != [rows[key]]:
            return f"asked for {key!r}"
        if case.mode == "copy-on-write" and case.format == "parquet" and _is_planned_by_pyiceberg(case):
            value = uuid.UUID(bytes=key) if case.kind.name == "uuid" else key
            if not list(written.table.metadata().scan(row_filter=EqualTo("k", value)).plan_files()):
                return f"planned by PyIceberg for {key!r}"
    return ""


def test_rows_are_those_of_the_model(spark: SparkSession, tables: tuple[Catalog, Lake]) -> None:
    """Whatever the type of the key, readers give the model's rows; of each type one way to write a table."""
    few = (BATCHES, ASKED) if THOROUGH else (2, 1)
    assert differences(spark, tables, list(a_few()), *few) == {}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KEY_TYPES, ids=lambda kind: kind.name)
def test_rows_are_those_of_the_model_however_they_are_written(
    spark: SparkSession, tables: tuple[Catalog, Lake], kind: KeyType
) -> None:
    """Whatever the type of the key and its values, and however rows are replaced: readers give the model's rows, all
    of them, and each where it is asked for."""
    for turn in range(1, ROUNDS + 1):
        assert differences(spark, tables, [evolve(case, seed=turn) for case in possible(kind)]) == {}


NUMBERS = [(mode, version) for mode in MODES for version in (2, 3)]


@pytest.mark.parametrize(("mode", "version"), tiered(NUMBERS, [("position-delete", 2)]))
def test_partitions_of_numbers_without_digits(
    spark: SparkSession, tables: tuple[Catalog, Lake], mode: str, version: int
) -> None:
    """Rows whose partition is NaN or infinite have that value, and are replaced and found by it, as others are."""
    double = next(kind for kind in KEY_TYPES if kind.name == "double")
    case = Case(double, mode, version, "parquet", PartitionTerm("k", "identity"), seed=7)
    columns = pa.schema([("k", double.arrow), ("p", pa.int32()), ("v", pa.int64())])
    schema = build_table_schema(columns, (), frozenset(), nanoseconds=False)
    catalog, lake = tables
    properties = {"format-version": str(version)}
    written = Written(spark, case, catalog.create(case.name, schema, (PartitionTerm("k", "identity"),), properties), {})
    nan, inf = double.extreme[3:5]
    written.batch({nan: 1, inf: 2, -inf: 3, 1.5: 4}, Random(0))
    if mode != "equality-delete":
        written.batch({nan: 5, inf: None}, Random(1))
    wanted = {(str(key), value) for key, value in written.model.items()}
    found = spark.table(case.table).select("k", "v").collect()
    assert sorted((str(row.k), row.v) for row in found) == sorted(wanted)
    assert spark.table(case.table).filter("isnan(k)").count() == 1
    assert sorted(values_by_iceberg(spark, lake, case)) == sorted(written.model.values())


def _is_planned_by_pyiceberg(case: Case) -> bool:
    """PyIceberg 0.12 compares a uuid partition's value, a UUID, with a filter's, which are bytes: it finds no file."""
    by = case.partition
    by_uuid = case.kind.name == "uuid" and by is not None and (by.column, by.transform) == ("k", "identity")
    return case.kind.name in _IN_PYICEBERG and not by_uuid
