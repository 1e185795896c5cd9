"""A table at one moment -> what executors need to know to write its files: a frozen value that travels with tasks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

import attrs
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.sorting import SortOrder

from connector.errors import FatalError
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.types.values.orc_values import EARLY_FRACTIONS, find_early_fractions
from connector.settings.iceberg.new_tables.file_formats import DEFAULT_FORMAT_PROPERTY
from connector.settings.iceberg.required_jars import ADLS, store_of
from serde.arrays import Mask
from serde.avro import object_file
from serde.avro.object_file import Compression

TARGET_FILE_SIZE_PROPERTY = "write.target-file-size-bytes"
TARGET_DELETE_FILE_SIZE_PROPERTY = "write.delete.target-file-size-bytes"
PARQUET_CODEC_PROPERTY = "write.parquet.compression-codec"
PARQUET_CODEC_LEVEL_PROPERTY = "write.parquet.compression-level"
AVRO_CODEC_PROPERTY = "write.avro.compression-codec"
AVRO_CODEC_LEVEL_PROPERTY = "write.avro.compression-level"
DATA_PATH_PROPERTY = "write.data.path"
ORC_CODEC_PROPERTY = "write.orc.compression-codec"
ORC_STRATEGY_PROPERTY = "write.orc.compression-strategy"
ORC_STRIPE_PROPERTY = "write.orc.stripe-size-bytes"
DataFormat = Literal["parquet", "avro", "orc"]
DATA_FORMATS = get_args(DataFormat)
_ORC_CODECS = {"zlib": "zlib", "zstd": "zstd", "snappy": "snappy", "lz4": "lz4", "none": "uncompressed"}
_DEFLATE_LEVEL, _ZSTANDARD_LEVEL = 1, 1
_PARQUET_CODECS = {
    **{name: name for name in ("zstd", "gzip", "brotli", "snappy", "lz4")},
    "lz4_raw": "lz4",
    "uncompressed": "none",
    "none": "none",
}
_LEVELED_CODECS = ("zstd", "gzip", "brotli")
_GZIP_LEVELS = {"no_compression": "0", "best_speed": "1", "best_compression": "9", "default_compression": None}
"""What Hadoop calls levels of gzip, which Java's Parquet takes by these names only."""
_UNSORTED_ORDER_JSON = '{"order-id":0,"fields":[]}'


@attrs.frozen(slots=False)
class TableLayout(RowLayout):
    """A table's schema, partitioning and file rules at one moment: the layout of its rows and of its files.

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

    @property
    def conversion(self) -> Hashable:
        """What decides how rows are made: what a file's format cannot hold among it."""
        return super().conversion, tuple(sorted(self.properties.items()))

    @cached_property
    def spec(self) -> PartitionSpec:
        """The partition spec that new data files are written under."""
        return _parse_spec(self.spec_json)

    @cached_property
    def order(self) -> SortOrder:
        """The sort order of rows in data files."""
        return SortOrder.model_validate_json(self.order_json)

    @property
    def data_path(self) -> str:
        """The folder of data files, without a trailing slash."""
        return self.properties.get(DATA_PATH_PROPERTY, f"{self.location}/data").rstrip("/")

    def folder_of(self, partition: str) -> str:
        """Return the folder of a partition's files, by the partition's own path.

        Azure's clients for Java take `%41` in a path for an A, so there it has no such signs: nothing reads it.
        """
        safe = partition.replace("%", "_") if store_of(urlsplit(self.data_path).scheme) == ADLS else partition
        return f"{self.data_path}/{safe}".rstrip("/")

    @property
    def target_file_size_bytes(self) -> int:
        """`write.target-file-size-bytes` (Iceberg's default: 512 MiB)."""
        return self._number(TARGET_FILE_SIZE_PROPERTY, 512 * 1024**2)

    @property
    def target_delete_file_size_bytes(self) -> int:
        """`write.delete.target-file-size-bytes` (Iceberg's default: 64 MiB)."""
        return self._number(TARGET_DELETE_FILE_SIZE_PROPERTY, 64 * 1024**2)

    def parquet_compression(self) -> dict[str, Any]:
        """Arguments for the Parquet writer from `write.parquet.compression-*` (Iceberg's default: zstd).

        As in Iceberg, a level has no effect on codecs that have none.

        Raises:
            FatalError: the codec is not written, or the level is no number.
        """
        codec = self.properties.get(PARQUET_CODEC_PROPERTY, "zstd").lower()
        if codec not in _PARQUET_CODECS:
            raise FatalError(
                f"table {self.name}: {PARQUET_CODEC_PROPERTY} is {codec}, which is not written; set it to "
                "zstd, gzip, snappy, lz4, brotli or uncompressed"
            )
        level = self._level(PARQUET_CODEC_LEVEL_PROPERTY) if codec in _LEVELED_CODECS else None
        return {"compression": _PARQUET_CODECS[codec], "compression_level": level}

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

    def orc_options(self) -> dict[str, Any]:
        """Arguments for the ORC writer from `write.orc.*` (Iceberg's defaults: zlib, stripes of 64 MiB).

        Raises:
            FatalError: the codec is not written.
        """
        codec = self.properties.get(ORC_CODEC_PROPERTY, "zlib").lower()
        if codec not in _ORC_CODECS:
            raise FatalError(
                f"table {self.name}: {ORC_CODEC_PROPERTY} is {codec}, which is not written; set it to "
                f"{' or '.join(_ORC_CODECS)}"
            )
        return {
            "compression": _ORC_CODECS[codec],
            "compression_strategy": self.properties.get(ORC_STRATEGY_PROPERTY, "speed").lower(),
            "stripe_size": self._number(ORC_STRIPE_PROPERTY, 64 * 1024**2),
        }

    def find_unwritable_values(self, column: pa.Array) -> tuple[Mask, str] | None:
        """Mark the rows whose value of a column data files of the table's format cannot hold; None where all can."""
        marks = find_early_fractions(column) if self.data_format == "orc" else None
        return None if marks is None else (marks, EARLY_FRACTIONS)

    def _level(self, name: str) -> int | None:
        text = self.properties.get(name)
        text = _GZIP_LEVELS.get(text.lower(), text) if text else None
        return self._parse(name, text) if text and text != "null" else None

    def _number(self, name: str, default: int) -> int:
        text = self.properties.get(name)
        return default if text is None else self._parse(name, text)

    def _parse(self, name: str, text: str) -> int:
        try:
            return int(text)
        except ValueError as error:
            raise FatalError(f"table {self.name}: {name} is {text}, which is no whole number; set it to one") from error

    @property
    def data_format(self) -> DataFormat:
        """`write.format.default`: how data files are written; delete files are Parquet in any case.

        Raises:
            FatalError: it is a format that is not written here.
        """
        named = self.properties.get(DEFAULT_FORMAT_PROPERTY, "parquet").lower()
        if named not in DATA_FORMATS:
            raise FatalError(
                f"table {self.name}: {DEFAULT_FORMAT_PROPERTY} is {named}, which is not written; set the table's "
                f"property to {' or '.join(DATA_FORMATS)}, or iceberg.tables.write-props.{DEFAULT_FORMAT_PROPERTY}, "
                "which wins over it"
            )
        return cast("DataFormat", named)


@lru_cache(maxsize=1024)
def _parse_spec(spec_json: str) -> PartitionSpec:
    return PartitionSpec.model_validate_json(spec_json)
