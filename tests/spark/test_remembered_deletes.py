"""Keys that a task asks for -> the deletes that are remembered of them, by a join of Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connector.sink.destinations.opensearch.lookups.remembered_deletes import ask_deletes, find_deletes, unpack_deletes
from connector.sink.model.task_output import OUTPUT_SCHEMA, OutputKind, to_batches
from tests.unit.sink_plans import upsert

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TABLE = upsert(3, {"id": pa.int64()}, ("id",))


def test_deletes_of_the_keys_that_are_asked_for(spark: SparkSession) -> None:
    """Every delete of such a key comes back, for the same table, and nothing of other keys."""
    asked = [*ask_deletes(pa.array(["1", "2"]), TABLE), *ask_deletes(pa.array(["a,b"]), TABLE)]
    rows = [tuple(row.values()) for batch in to_batches(asked) for row in batch.to_pylist()]
    known = [("1", 10), ("1", 12), ("3", 30), ("a,b", 40)]
    remembered = spark.createDataFrame(known, "key string, date long").repartition(2)
    found = find_deletes(spark.createDataFrame(rows, OUTPUT_SCHEMA), remembered, TABLE, 3).collect()
    assert {(row.kind, row.table) for row in found} == {(OutputKind.DELETES_FOUND.value, 3)}
    pairs = [pair for row in found for pair in unpack_deletes(pa.py_buffer(bytes(row.payload)))]
    assert sorted(pairs) == [("1", 10), ("1", 12), ("a,b", 40)]
