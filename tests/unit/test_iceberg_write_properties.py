"""Files as a table's own properties have them: what of these counts here, what stops the sink, and what is no file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve

from connector.errors import DataFault, FatalError
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.tables.checks import check_encryption, check_layout
from tests.unit.sink_plans import layout

COLUMNS = {"id": pa.int64(), "name": pa.string()}
_CODEC, _LEVEL = "write.parquet.compression-codec", "write.parquet.compression-level"
_METRICS = "write.metadata.metrics"


def _write(folder: Path, properties: dict[str, str]) -> dict[str, Any]:
    """Write a row to a table of these properties, and return what its commit is told."""
    table = evolve(layout(COLUMNS), location=str(folder), properties=properties)
    check_layout(table, upsert=True)
    writer = TableWriter(table, "x")
    writer.write_rows(pa.RecordBatch.from_pylist([{"id": 1, "name": "a name of many letters"}], table.columns))
    (made,) = writer.close()
    return json.loads(made.json)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("codec", "level", "written"),
    [
        ("snappy", "3", "SNAPPY"),
        ("uncompressed", "1", "UNCOMPRESSED"),
        ("LZ4", "9", "LZ4"),
        ("gzip", "BEST_SPEED", "GZIP"),
        ("gzip", "default_compression", "GZIP"),
        ("zstd", "null", "ZSTD"),
    ],
)
def test_codecs_and_levels(tmp_path: Path, codec: str, level: str, written: str) -> None:
    """A level has no effect on codecs that have none, and those of gzip may have Hadoop's names, as in Iceberg."""
    made = _write(tmp_path, {_CODEC: codec, _LEVEL: level})
    assert pq.ParquetFile(made["file-path"]).metadata.row_group(0).column(0).compression == written


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (_CODEC, "lzo"),
        (_LEVEL, "fast"),
        ("write.target-file-size-bytes", "128MB"),
        ("write.delete.target-file-size-bytes", "64m"),
    ],
)
def test_values_that_cannot_be_followed(tmp_path: Path, key: str, value: str) -> None:
    """A codec that is not written, and a size that is no number, are told with the property before any file is made."""
    with pytest.raises(FatalError, match=rf"^table d\.t: {key} is {value}, which is no.*; set it to "):
        _write(tmp_path, {key: value})


@pytest.mark.parametrize("mode", ["most", "truncate(x)", "truncate(0)"])
@pytest.mark.parametrize("key", [f"{_METRICS}.default", f"{_METRICS}.column.name"])
@pytest.mark.parametrize("data_format", ["parquet", "avro"])
def test_metrics_modes_that_are_none(tmp_path: Path, key: str, mode: str, data_format: str) -> None:
    """A metrics mode that Iceberg does not know is as none at all, as it is there: bounds are cut to 16 letters."""
    made = _write(tmp_path, {key: mode, "write.format.default": data_format})
    assert bytes.fromhex(dict(zip(*made["lower-bounds"].values(), strict=True))[2]) == b"a name of many l"


@pytest.mark.parametrize(
    ("place", "folder"),
    [
        ("abfss://c@a.dfs.core.windows.net/t", "city=S_C3_A3o+Paulo"),
        ("wasbs://c@a.blob.core.windows.net/t", "city=S_C3_A3o+Paulo"),
        ("s3://b/t", "city=S%C3%A3o+Paulo"),
        ("/t", "city=S%C3%A3o+Paulo"),
    ],
)
def test_folders_of_partitions(place: str, folder: str) -> None:
    """On Azure no folder has a percent sign: some of its clients read what follows as a letter's number."""
    table = evolve(layout(COLUMNS), location=place)
    assert table.folder_of("city=S%C3%A3o+Paulo") == f"{place}/data/{folder}"
    assert table.folder_of("") == f"{place}/data"


@pytest.mark.parametrize("data_format", ["parquet", "avro", "orc"])
def test_no_rows_are_no_file(tmp_path: Path, data_format: str) -> None:
    """A batch without rows or keys leaves no file: a table of history got an empty one for deletes alone."""
    properties = {"write.format.default": data_format}
    table = evolve(layout(COLUMNS, ("id",)), location=str(tmp_path), properties=properties)
    writer = TableWriter(table, "x")
    writer.write_rows(pa.RecordBatch.from_pylist([], table.columns))
    writer.write_equality_deletes(pa.RecordBatch.from_pylist([], pa.schema(table.key_fields)))
    assert list(writer.close()) == []
    assert list(tmp_path.rglob("*.*")) == []


def test_an_encrypted_table() -> None:
    """A table whose files are to be encrypted gets none that are not."""
    check_encryption(layout(COLUMNS))
    with pytest.raises(DataFault, match=r"^table d\.t is encrypted .*; write to another table"):
        check_encryption(evolve(layout(COLUMNS), properties={"encryption.key-id": "k"}))
