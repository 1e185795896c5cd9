"""A snapshot -> its schema, for interpreting rows and for reading them with Spark. On the driver; metadata only.

Spark has no type for `time` and for nanosecond timestamps: such columns are carried as their stored numbers (spec,
"Primitive Types": microseconds of the day, nanoseconds since the epoch).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import time
from functools import cached_property
from typing import Any

import attrs
import numpy as np
import orjson
from pyiceberg.schema import Schema
from pyspark.sql import SparkSession

from connector.errors import FatalError, GapError
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import jvm, map_java_errors
from connector.iceberg.types.schemas.schema_json import VARIANT_TYPE, Json, iter_fields, replace_types, to_pyiceberg

_SHAPES = ("geometry", "geography")
_CARRIER_TYPES = {"time": "long", "timestamp_ns": "long", "timestamptz_ns": "long"}


@attrs.frozen(slots=False)
class SnapshotSchema:
    """The schema that a snapshot was written with, as Iceberg's JSON has it."""

    json: str

    @cached_property
    def document(self) -> Json:
        """The parsed JSON; read only."""
        return orjson.loads(self.json)

    @cached_property
    def iceberg(self) -> Schema:
        """The schema as PyIceberg has it: variant columns of type `unknown`, no defaults."""
        known = to_pyiceberg(self.document, "unknown")
        return Schema.model_validate_json(orjson.dumps(known))

    @cached_property
    def variants(self) -> frozenset[int]:
        """The field ids of variant columns, at any depth."""
        return frozenset(field["id"] for _, field in iter_fields(self.document) if field["type"] == VARIANT_TYPE)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(field["name"] for field in self.document["fields"])

    @cached_property
    def identifiers(self) -> tuple[str, ...]:
        """The names of the identifier columns in schema order; nested ones with dots."""
        ids = set(self.document.get("identifier-field-ids", ()))
        return tuple(name for name, field in iter_fields(self.document) if field["id"] in ids)

    @property
    def flat(self) -> bool:
        """Whether every column is a primitive, so that Iceberg's vectorised Parquet reader takes the table."""
        return not any(map(_is_nested, self.document["fields"]))

    def leave_out(self, names: Collection[str]) -> SnapshotSchema:
        """Return the schema without those of some columns that keep the table from being read: shapes, and all nested
        columns where there are times.

        Other columns stay, whoever wants them: what changed in a row is told by all of its columns.
        """
        named = [field for field in self.document["fields"] if field["name"] in names]
        left = self.without(field["name"] for field in named if _holds(field, _SHAPES))
        if left.flat or not any(_holds(field, ("time",)) for field in left.document["fields"]):
            return left
        # A file with a time is read a column at a time or not at all, asked for or not.
        plain = left.without(field["name"] for field in named if _is_nested(field))
        return plain if plain.flat else left

    def without(self, names: Iterable[str]) -> SnapshotSchema:
        """Return the schema without some columns."""
        unread = frozenset(names)
        if not unread:
            return self
        kept = [field for field in self.document["fields"] if field["name"] not in unread]
        return SnapshotSchema(orjson.dumps({**self.document, "fields": kept}).decode())

    def to_carrier(self, name: Callable[[int], str]) -> Json:
        """Return the schema that Spark reads with: columns named by their place, types it lacks as numbers.

        Raises:
            ValueError: a column cannot be read by Spark; says which.
        """
        if not self.flat:
            self._refuse_times()
        fields = to_carrier_types(self.document)["fields"]
        return {
            "type": "struct",
            "schema-id": 0,
            "fields": [{**field, "name": name(place)} for place, field in enumerate(fields)],
        }

    def _refuse_times(self) -> None:
        names = [name for name, field in iter_fields(self.document) if field["type"] == "time"]
        if names:
            raise ValueError(f"column {', '.join(names)} is of type time beside nested columns")


def _is_nested(field: Json) -> bool:
    return not isinstance(field["type"], str) or field["type"] == VARIANT_TYPE


def _holds(field: Json, kinds: tuple[str, ...]) -> bool:
    """Tell whether a column is of one of some primitive types, or has one within it."""
    types = (one["type"] for _, one in iter_fields({"fields": [field]}))
    return any(isinstance(kind, str) and kind.startswith(kinds) and not kind.startswith("timestamp") for kind in types)


def lacks_spark_types(schema_json: str) -> bool:
    """Tell whether Iceberg's Spark code reads no such table, neither its rows nor what it tells of its files: a column,
    at any depth, is of a type that Spark lacks.
    """
    return any(
        field["type"] in _CARRIER_TYPES
        for _, field in iter_fields(orjson.loads(schema_json))
        if isinstance(field["type"], str)
    )


def to_carrier_types(kind: Any) -> Any:
    """Return a type, a field's struct or a schema with numbers for types that Spark lacks, their defaults too."""
    return replace_types(kind, lambda name: _CARRIER_TYPES.get(name, name), _default_to_number)


def _default_to_number(kind: str, text: Any) -> Any:
    """Return a default value as the number that carries it (spec, "JSON single-value serialization")."""
    if kind == "time":
        at = time.fromisoformat(text)
        return ((at.hour * 60 + at.minute) * 60 + at.second) * 1_000_000 + at.microsecond
    if kind in _CARRIER_TYPES:
        return int(np.datetime64(text.removesuffix("Z").removesuffix("+00:00"), "ns").astype(np.int64))
    return text


def load_snapshot_schema(spark: SparkSession, table: Table, snapshot_id: int) -> SnapshotSchema:
    """Return the schema of a snapshot (the table's current one for snapshots older than the schema id).

    Raises:
        GapError: there is no such snapshot any more.
    """
    iceberg = jvm(spark).org.apache.iceberg
    if table.java.snapshot(snapshot_id) is None:
        raise GapError(
            f"table {table.name} has no snapshot {snapshot_id} any more: it has expired; keep snapshots for longer "
            "(history.expire.max-snapshot-age-ms); a source reads the table in full after `icebridge offsets reset`"
        )
    with map_java_errors(f"reading the schema of {table.name} at snapshot {snapshot_id}"):
        return SnapshotSchema(iceberg.SchemaParser.toJson(iceberg.util.SnapshotUtil.schemaFor(table.java, snapshot_id)))


def load_current_schema(spark: SparkSession, table: Table) -> SnapshotSchema:
    """Return the table's current schema."""
    return SnapshotSchema(jvm(spark).org.apache.iceberg.SchemaParser.toJson(table.java.schema()))


def check_format_version(table: Table) -> None:
    """Refuse tables whose changes cannot be read.

    Raises:
        FatalError: a v1 table.
    """
    if table.format_version < 2:  # noqa: PLR2004 - the first version with sequence numbers
        raise FatalError(
            f"table {table.name} is of format version 1, which has no sequence numbers; upgrade it with "
            f"ALTER TABLE {table.name} SET TBLPROPERTIES ('format-version'='2')"
        )
