"""Keys of every type, through the sink's own writers and commits -> what Iceberg's readers give: the model's rows."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pyarrow as pa
import pytest
from attrs import evolve
from pyiceberg.expressions import EqualTo
from pyspark.sql import SparkSession

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.keys.file_key_bounds import read_key_bounds
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.values.single_values import encode_json
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.clients.lake import Lake
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.histories.written_tables import (
    BATCHES,
    MODES,
    PARTITIONS,
    Case,
    Written,
    fill,
    open_catalog,
    values_by_iceberg,
    values_of_all,
)
from tests.model.key_types import KEY_TYPES, KeyType, key_type

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROUNDS = int(os.environ.get("ICEBRIDGE_KEY_TYPES", "1"))
"""Rounds of the whole law in `make test-all`, each with other values."""
ASKED = 3
THREADS = 6
"""Tables that are written side by side: most of a small table's time is waiting."""
_IN_PYICEBERG = ("int", "long", "string", "binary", "uuid", "decimal_38_10", "decimal_9_2")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Catalog, Lake]:
    """A catalog for the sink's code, and the same for readers."""
    home: Path = tmp_path_factory.mktemp("key_types")
    properties = {"type": "hadoop", "warehouse": str(home), "io-impl": "org.apache.iceberg.io.ResolvingFileIO"}
    return open_catalog(spark, "key_types", properties)


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
    double = key_type("double")
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
