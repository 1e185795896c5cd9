"""What executors need to know of a table to write its files: a frozen value, made by the driver, pickled to tasks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from connector.iceberg.types import arrow_schema

TARGET_FILE_SIZE = "write.target-file-size-bytes"
TARGET_DELETE_FILE_SIZE = "write.delete.target-file-size-bytes"
CODEC = "write.parquet.compression-codec"
CODEC_LEVEL = "write.parquet.compression-level"


@attrs.frozen(slots=False)
class TableLayout:
    """A table's schema, partitioning and file rules at one moment.

    Schemas and specs travel as JSON, so that a pickle is small and needs no JVM on the other side.
    `delete_spec_id` is the id of an unpartitioned spec: equality deletes under it are global (spec, "Equality Delete
    Files"), so that a row that moves partition leaves no ghost. `id_columns` win over the identifier fields.
    """

    name: str
    uuid: str
    location: str
    schema_json: str
    spec_json: str
    delete_spec_id: int
    properties: Mapping[str, str]
    io_properties: Mapping[str, str]
    id_columns: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> Schema:
        """The Iceberg schema."""
        return Schema.model_validate_json(self.schema_json)

    @cached_property
    def columns(self) -> pa.Schema:
        """The Arrow schema of data files, with field ids."""
        return arrow_schema(self.schema)

    @cached_property
    def spec(self) -> PartitionSpec:
        """The partition spec that new data files are written under."""
        return PartitionSpec.model_validate_json(self.spec_json)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The identifier columns in schema order; empty for a table without a key."""
        if self.id_columns:
            return tuple(f.name for f in self.schema.fields if f.name in self.id_columns)
        return tuple(f.name for f in self.schema.fields if f.field_id in self.schema.identifier_field_ids)

    @property
    def data_path(self) -> str:
        """The folder of data files, without a trailing slash."""
        return self.properties.get("write.data.path", f"{self.location}/data").rstrip("/")

    @property
    def target_file_size_bytes(self) -> int:
        """`write.target-file-size-bytes` (Iceberg's default: 512 MiB)."""
        return int(self.properties.get(TARGET_FILE_SIZE, 512 * 1024**2))

    @property
    def target_delete_file_size_bytes(self) -> int:
        """`write.delete.target-file-size-bytes` (Iceberg's default: 64 MiB)."""
        return int(self.properties.get(TARGET_DELETE_FILE_SIZE, 64 * 1024**2))

    @property
    def compression(self) -> dict[str, Any]:
        """Arguments for the Parquet writer from `write.parquet.compression-*` (Iceberg's default: zstd)."""
        codec = self.properties.get(CODEC, "zstd").lower()
        level = self.properties.get(CODEC_LEVEL)
        name = {"uncompressed": "none", "lz4_raw": "lz4"}.get(codec, codec)
        return {"compression": name, "compression_level": int(level) if level and level != "null" else None}
