"""Tables with bounds that mislead readers -> `icebridge repair` -> the rows that their deletes were meant to leave."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.iceberg.catalog import Catalog
from connector.iceberg.mending import harm
from connector.settings.catalog import CatalogSettings
from connector.settings.partitions import PartitionTerm
from tests.host import Host
from tests.model.key_types import KEY_TYPES
from tests.reading import Lake
from tests.running import catalog
from tests.spark.test_key_types import Case, fill, values_by_iceberg, values_by_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

UUID = next(kind for kind in KEY_TYPES if kind.name == "uuid")


def _places(spark: SparkSession, case: Case) -> list[Any]:
    """Each file with its sequence numbers, and the snapshot it came with."""
    columns = "data_file.file_path, sequence_number, file_sequence_number, snapshot_id"
    return sorted(map(tuple, spark.sql(f"SELECT {columns} FROM {case.table}.entries WHERE status < 2").collect()))


def _row_ids(spark: SparkSession, case: Case) -> dict[int, int]:
    return dict(map(tuple, spark.sql(f"SELECT v, _row_id FROM {case.table}").collect()))


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_that_were_left_out_apply(
    spark: SparkSession, host: Host, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run changes nothing; then the rows are right for all readers, files and their numbers are what they were,
    and the table goes on."""
    name = f"repair_{version}"
    (tmp_path / "warehouse").mkdir()
    properties = catalog(tmp_path)
    lake = Lake(spark, name, properties)
    tables = Catalog(spark, CatalogSettings(name, properties, ("default",), {}))
    case = Case(UUID, "equality-delete", version, "parquet", PartitionTerm("p", "identity"), catalog=name)
    # As they were written before.
    for module in ("footer", "parquet_file"):
        monkeypatch.setattr(f"connector.iceberg.{module}.UNORDERED", ())
    written = fill(spark, tables, case)
    monkeypatch.undo()
    right = sorted(written.model.values())
    assert len(values_by_spark(spark, case)) > len(right)
    found = harm(written.table)
    assert (found.columns, found.delete_files > 0, found.data_files > 0) == (("k",), True, True)
    places, ids = _places(spark, case), _row_ids(spark, case) if version > 2 else {}

    file = tmp_path / "sink.properties"
    lines = {f"debezium.sink.iceberg.{key}": value for key, value in properties.items()}
    lines |= {"name": name, "bootstrap.servers": "localhost:1", "topics": "t", "debezium.sink.type": "iceberg"}
    lines["debezium.sink.iceberg.catalog-name"] = name
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    assert host.call("repair", str(file)).code == 0
    assert harm(tables.load(case.name)) == found
    said = host.call("repair", "--execute", "--table", case.name, str(file))
    assert said.code == 0, said.log

    assert values_by_spark(spark, case) == right
    assert values_by_iceberg(spark, lake, case) == right
    assert _places(spark, case) == places
    if version > 2:
        assert _row_ids(spark, case) == {value: ids[value] for value in right}
    written.table.refresh()
    assert not harm(written.table).snapshots
    lake.java(case.name).expireSnapshots().expireOlderThan(2**60).retainLast(1).commit()
    written.batch(dict.fromkeys(list(written.model)[:3], 10_000), Random(3))
    assert values_by_iceberg(spark, lake, case) == sorted(written.model.values())
    assert host.call("repair", str(file)).code == 0
