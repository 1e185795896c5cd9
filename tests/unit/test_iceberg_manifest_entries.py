"""Manifests as Java writes them -> entries: partitions of types that are described once and then named."""

from __future__ import annotations

from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from fastavro import schemaless_reader, schemaless_writer
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, FixedType, LongType, NestedField, PrimitiveType, UUIDType

from connector.iceberg.catalog.manifest_entries import read_manifest_entries, spell_out_types

IO = PyArrowFileIO()
KINDS: dict[str, tuple[PrimitiveType, list[Any]]] = {
    "uuid": (UUIDType(), [UUID(int=1), UUID(int=2)]),
    "decimal": (DecimalType(9, 2), [Decimal("1.10"), Decimal("-2.20")]),
    "fixed": (FixedType(3), [b"abc", b"\0\0\xff"]),
    "long": (LongType(), [-1, 2**62]),
}
HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
    ],
}


def manifest(path: Path, kinds: list[str]) -> ManifestFile:
    """A manifest of one file, whose partition has two fields of each kind."""
    types = [KINDS[kind][0] for kind in kinds for _ in range(2)]
    schema = Schema(*(NestedField(i, f"c{i}", kind) for i, kind in enumerate(types, 1)))
    spec = PartitionSpec(*(PartitionField(i, 1000 + i, IdentityTransform(), f"c{i}") for i in range(1, len(types) + 1)))
    values = [value for kind in kinds for value in KINDS[kind][1]]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="a.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=3,
        file_size_in_bytes=9,
    )
    with write_manifest(2, spec, schema, IO.new_output(str(path)), 5, "null") as writer:
        writer.add_entry(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=5, data_file=file))
    return writer.to_manifest_file()


def shorten(path: Path) -> None:
    """Describe types as Java does: a second time by name alone, and numbers as timestamps of nanoseconds."""
    stream = BytesIO(path.read_bytes())
    header: Any = schemaless_reader(stream, HEADER, None)
    schema = orjson.loads(header["meta"]["avro.schema"])
    entry = next(field for field in schema["fields"] if field["name"] == "data_file")
    partition = next(field for field in entry["type"]["fields"] if field["name"] == "partition")
    seen = set[str]()
    for field in partition["type"]["fields"]:
        kind = field["type"][1]
        if kind == "long":
            field["type"][1] = {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False}
        elif kind["name"] in seen:
            field["type"][1] = kind["name"]
        else:
            seen.add(kind["name"])
    header["meta"]["avro.schema"] = orjson.dumps(schema)
    made = BytesIO()
    schemaless_writer(made, HEADER, header)
    path.write_bytes(made.getvalue() + stream.read())


@pytest.mark.parametrize("kinds", [["uuid"], ["decimal"], ["fixed"], ["long"], [*KINDS]], ids="-".join)
def test_partitions_of_two_fields_of_one_type_are_read(tmp_path: Path, kinds: list[str]) -> None:
    """Entries are those of the manifest that describes each type anew."""
    path = tmp_path / "m.avro"
    found = manifest(path, kinds)
    expected = [value for kind in kinds for value in KINDS[kind][1]]
    for change in (lambda: None, lambda: shorten(path)):
        change()
        (entry,) = read_manifest_entries(found, IO)
        assert [entry.data_file.partition[place] for place in range(len(expected))] == expected
        assert (entry.data_file.file_path, entry.data_file.record_count, entry.snapshot_id) == ("a.parquet", 3, 5)


def test_a_manifest_that_needs_no_change_is_read_as_it_is(tmp_path: Path) -> None:
    """Its bytes stay the same."""
    manifest(tmp_path / "m.avro", ["uuid"])
    data = (tmp_path / "m.avro").read_bytes()
    assert spell_out_types(data) is data
