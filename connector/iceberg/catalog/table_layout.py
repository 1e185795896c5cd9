"""What executors need to know of a table to write its files: a frozen value, made by the driver, pickled to tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal, cast

import attrs
import orjson
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import NestedField, StructType

from connector.errors import FatalError
from connector.iceberg.types.arrow_types import make_nullable, to_arrow_schema
from connector.iceberg.types.nested_columns import Path, find_field, find_path, required_paths
from connector.iceberg.types.schema_json import VARIANT_TYPE, iter_fields, to_pyiceberg
from serde.avro import object_file
from serde.avro.object_file import Compression

TARGET_FILE_SIZE_PROPERTY = "write.target-file-size-bytes"
TARGET_DELETE_FILE_SIZE_PROPERTY = "write.delete.target-file-size-bytes"
PARQUET_CODEC_PROPERTY = "write.parquet.compression-codec"
PARQUET_CODEC_LEVEL_PROPERTY = "write.parquet.compression-level"
AVRO_CODEC_PROPERTY = "write.avro.compression-codec"
AVRO_CODEC_LEVEL_PROPERTY = "write.avro.compression-level"
DEFAULT_FORMAT_PROPERTY = "write.format.default"
DataFormat = Literal["parquet", "avro"]
FieldFilter = Callable[[str, NestedField], bool]
_DEFLATE_LEVEL, _ZSTANDARD_LEVEL = 1, 1
_UNPARTITIONED_SPEC_JSON = '{"spec-id":0,"fields":[]}'
_UNSORTED_ORDER_JSON = '{"order-id":0,"fields":[]}'


@attrs.frozen(slots=False)
class TableLayout:
    """A table's schema, partitioning and file rules at one moment.

    Schemas and specs travel as JSON, so that a pickle is small and needs no JVM on the other side.
    `delete_spec_id` is the id of an unpartitioned spec: equality deletes under it are global (spec, "Equality Delete
    Files"), so that a row that moves partition leaves no ghost. `delete_spec_fields` counts the fields that format
    version 1 has left in it. `id_columns` win over the identifier fields.
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
    order_json: str = _UNSORTED_ORDER_JSON
    delete_spec_fields: int = 0

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what the other side reads from the JSON itself."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(TableLayout)}

    @classmethod
    def for_rows(cls, name: str, schema_json: str, id_columns: tuple[str, ...] = ()) -> TableLayout:
        """Return the layout of rows that go to no files, such as documents of an index."""
        return cls(name, "", "", schema_json, _UNPARTITIONED_SPEC_JSON, 0, {}, {}, id_columns)

    @cached_property
    def schema(self) -> Schema:
        """The Iceberg schema; variant columns are text, as they are on their way."""
        return parse_schema(self.schema_json)

    @property
    def variants(self) -> frozenset[str]:
        """The variant columns; what is nested below another column is told by its path."""
        return _parse_variants(self.schema_json)

    @property
    def text_columns(self) -> frozenset[str]:
        """The columns that are text, variants not among them."""
        return _parse_text_columns(self.schema_json)

    @cached_property
    def columns(self) -> pa.Schema:
        """The Arrow schema of data files, with field ids."""
        return _parse_columns(self.schema_json)

    @cached_property
    def rows(self) -> pa.Schema:
        """The same, none of them required: rows on their way may still lack what the table requires."""
        return _parse_nullable_columns(self.schema_json)

    @cached_property
    def spec(self) -> PartitionSpec:
        """The partition spec that new data files are written under."""
        return _parse_spec(self.spec_json)

    @cached_property
    def order(self) -> SortOrder:
        """The sort order of rows in data files."""
        return SortOrder.model_validate_json(self.order_json)

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The names of what tells rows apart, in schema order, fields of structs dotted; empty without a key.

        A configured column that is a struct stands for all fields within it.
        """
        if self.id_columns:
            return tuple(_iter_key_names(self.schema.fields, lambda name, _: name in self.id_columns))
        ids = self.schema.identifier_field_ids
        return tuple(_iter_key_names(self.schema.fields, lambda _, field: field.field_id in ids))

    @cached_property
    def key_fields(self) -> tuple[pa.Field, ...]:
        """The same as fields of flat columns (see `nested.columns_of`)."""
        return tuple(find_field(self.columns, name) for name in self.keys)

    @cached_property
    def key_paths(self) -> tuple[Path, ...]:
        """The same by the names from the top on."""
        return tuple(find_path(self.columns, name) or (name,) for name in self.keys)

    @cached_property
    def key_columns(self) -> frozenset[str]:
        """The columns that are a key, or have one within them."""
        return frozenset(path[0] for path in self.key_paths)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The required columns that are neither a key nor an identifier field, nor have one within them."""
        ids = {str(self.schema.find_column_name(i)).split(".")[0] for i in self.schema.identifier_field_ids}
        return tuple(f.name for f in self.columns if not f.nullable and f.name not in self.key_columns | ids)

    @cached_property
    def required_nested_fields(self) -> tuple[Path, ...]:
        """The fields of structs that are required, by the names from the top on; those within lists and maps apart."""
        return tuple(required_paths(self.columns))

    @property
    def nested_keys(self) -> tuple[str, ...]:
        """Those of `keys` that are no columns of their own but fields of structs."""
        return tuple(name for name, path in zip(self.keys, self.key_paths, strict=True) if len(path) > 1)

    @property
    def data_path(self) -> str:
        """The folder of data files, without a trailing slash."""
        return self.properties.get("write.data.path", f"{self.location}/data").rstrip("/")

    @property
    def target_file_size_bytes(self) -> int:
        """`write.target-file-size-bytes` (Iceberg's default: 512 MiB)."""
        return int(self.properties.get(TARGET_FILE_SIZE_PROPERTY, 512 * 1024**2))

    @property
    def target_delete_file_size_bytes(self) -> int:
        """`write.delete.target-file-size-bytes` (Iceberg's default: 64 MiB)."""
        return int(self.properties.get(TARGET_DELETE_FILE_SIZE_PROPERTY, 64 * 1024**2))

    @property
    def compression(self) -> dict[str, Any]:
        """Arguments for the Parquet writer from `write.parquet.compression-*` (Iceberg's default: zstd)."""
        codec = self.properties.get(PARQUET_CODEC_PROPERTY, "zstd").lower()
        name = {"uncompressed": "none", "lz4_raw": "lz4"}.get(codec, codec)
        return {"compression": name, "compression_level": self._level(PARQUET_CODEC_LEVEL_PROPERTY)}

    def avro_compression(self) -> Compression:
        """How blocks of Avro files are compressed, by `write.avro.compression-*` (Iceberg's default: gzip).

        Raises:
            FatalError: the codec is none of Iceberg's.
        """
        level = self._level(AVRO_CODEC_LEVEL_PROPERTY)
        match self.properties.get(AVRO_CODEC_PROPERTY, "gzip").lower():
            case "gzip":
                return object_file.deflate(_DEFLATE_LEVEL if level is None else level)
            case "zstd":
                return object_file.zstandard(_ZSTANDARD_LEVEL if level is None else level)
            case "snappy":
                return object_file.snappy()
            case "uncompressed":
                return object_file.null()
            case other:
                raise FatalError(
                    f"table {self.name}: {AVRO_CODEC_PROPERTY} is {other}, which is not written; set it to "
                    "gzip, zstd, snappy "
                    "or uncompressed"
                )

    def _level(self, name: str) -> int | None:
        text = self.properties.get(name)
        return int(text) if text and text != "null" else None

    @property
    def data_format(self) -> DataFormat:
        """`write.format.default`: how data files are written; delete files are Parquet in any case.

        Raises:
            FatalError: it is a format that is not written here.
        """
        named = self.properties.get(DEFAULT_FORMAT_PROPERTY, "parquet").lower()
        if named not in ("parquet", "avro"):
            raise FatalError(
                f"table {self.name}: {DEFAULT_FORMAT_PROPERTY} is {named}, which is not written; set "
                "the table's property to parquet or "
                f"avro, or iceberg.tables.write-props.{DEFAULT_FORMAT_PROPERTY}, which wins over it"
            )
        return cast("DataFormat", named)


def _iter_key_names(fields: Iterable[NestedField], chosen: FieldFilter, prefix: str = "") -> Iterator[str]:
    for field in fields:
        name = prefix + field.name
        if isinstance(field.field_type, StructType):
            inside = _accept_any if chosen(name, field) else chosen
            yield from _iter_key_names(field.field_type.fields, inside, f"{name}.")
        elif chosen(name, field):
            yield name


def _accept_any(*_: object) -> bool:
    return True


# Tasks get their plan anew with every batch, of tables that stay the same: what JSON says is read once per process.


@lru_cache(maxsize=1024)
def parse_schema(schema_json: str) -> Schema:
    """Read a schema from Iceberg's JSON, with text for variants and without defaults."""
    return Schema.model_validate(to_pyiceberg(orjson.loads(schema_json), "string"))


@lru_cache(maxsize=1024)
def _parse_variants(schema_json: str) -> frozenset[str]:
    return frozenset(name for name, field in iter_fields(orjson.loads(schema_json)) if field["type"] == VARIANT_TYPE)


@lru_cache(maxsize=1024)
def _parse_text_columns(schema_json: str) -> frozenset[str]:
    columns, variants = _parse_columns(schema_json), _parse_variants(schema_json)
    return frozenset(field.name for field in columns if pa.types.is_string(field.type)) - variants


@lru_cache(maxsize=1024)
def _parse_columns(schema_json: str) -> pa.Schema:
    return to_arrow_schema(parse_schema(schema_json))


@lru_cache(maxsize=1024)
def _parse_nullable_columns(schema_json: str) -> pa.Schema:
    return make_nullable(_parse_columns(schema_json))


@lru_cache(maxsize=1024)
def _parse_spec(spec_json: str) -> PartitionSpec:
    return PartitionSpec.model_validate_json(spec_json)
