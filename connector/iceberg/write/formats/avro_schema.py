"""Iceberg schema -> Avro schema of data files, and how their datums lie. Pure.

Source: Iceberg's spec, "Appendix A: Format-specific Requirements", "Avro". PyIceberg's own conversion serves manifests
only: it leaves out that items and map values may be null, names no records in maps, and defines named types twice.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson
from attrs import field, frozen
from pyiceberg.schema import Schema, make_compatible_name
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_required_bytes

from serde.avro.codec import (
    Array,
    Boolean,
    Codec,
    Fixed,
    Float,
    Integer,
    LengthPrefixed,
    MapBlocks,
    Optional,
    Record,
    RecordField,
)

_AvroType = tuple[Any, Codec]
_UUID_BYTES = 16
_LONG = Integer(64)


def _time_type(logical: str, **more: bool) -> _AvroType:
    return {"type": "long", "logicalType": logical, **more}, _LONG


_PRIMITIVE_TYPES: dict[type[IcebergType], _AvroType] = {
    BooleanType: ("boolean", Boolean()),
    IntegerType: ("int", Integer(32)),
    LongType: ("long", _LONG),
    FloatType: ("float", Float(4)),
    DoubleType: ("double", Float(8)),
    StringType: ("string", LengthPrefixed(text=True)),
    BinaryType: ("bytes", LengthPrefixed(text=False)),
    DateType: ({"type": "int", "logicalType": "date"}, Integer(32)),
    TimeType: _time_type("time-micros"),
    TimestampType: _time_type("timestamp-micros", **{"adjust-to-utc": False}),
    TimestamptzType: _time_type("timestamp-micros", **{"adjust-to-utc": True}),
    TimestampNanoType: _time_type("timestamp-nanos", **{"adjust-to-utc": False}),
    TimestamptzNanoType: _time_type("timestamp-nanos", **{"adjust-to-utc": True}),
}


@frozen
class AvroFileSchema:
    """What a file says of itself (JSON), and the codec of its rows; fields are in the Iceberg schema's order."""

    text: str
    codec: Record


@lru_cache(maxsize=1024)
def build_file_schema(schema_json: str) -> AvroFileSchema:
    """Return the Avro schema of files of an Iceberg schema (its JSON).

    Raises:
        TypeError: Avro has no form for one of the types.
    """
    document, codec = _SchemaBuilder().record("table", Schema.model_validate_json(schema_json).as_struct())
    return AvroFileSchema(orjson.dumps(document).decode(), codec)


@frozen
class _SchemaBuilder:
    """One schema on its way; a named type is defined where it is met first, and referred to by its name after."""

    defined: set[str] = field(factory=set)

    def record(self, name: str, struct: StructType) -> tuple[dict[str, Any], Record]:
        fields, members = [], list[RecordField]()
        used_names = set[str]()
        for each in struct.fields:
            avro_type, codec = self._nullable_type(each.field_id, each.field_type, optional=each.optional)
            avro_name = make_compatible_name(each.name)
            if avro_name in used_names:
                avro_name = f"{avro_name}_{each.field_id}"
            used_names.add(avro_name)
            fields.append(_build_field(each, avro_name, avro_type))
            members.append(RecordField(each.name, codec))
        return {"type": "record", "name": name, "fields": fields}, Record(tuple(members))

    def _nullable_type(self, field_id: int, kind: IcebergType, *, optional: bool) -> _AvroType:
        avro_type, codec = self._type(field_id, kind)
        return (["null", avro_type], Optional(codec, 0, 2)) if optional else (avro_type, codec)

    def _type(self, field_id: int, kind: IcebergType) -> _AvroType:
        """Field ids are unique within a schema, so records are named by theirs."""
        match kind:
            case StructType():
                return self.record(f"r{field_id}", kind)
            case ListType():
                avro_type, codec = self._nullable_type(
                    kind.element_id, kind.element_type, optional=not kind.element_required
                )
                return {"type": "array", "items": avro_type, "element-id": kind.element_id}, Array(codec)
            case MapType():
                return self._map(kind)
        return self._primitive(kind)

    def _primitive(self, kind: IcebergType) -> _AvroType:
        match kind:
            case DecimalType():
                size = decimal_required_bytes(kind.precision)
                digits = {"precision": kind.precision, "scale": kind.scale}
                return self._fixed(f"decimal_{kind.precision}_{kind.scale}", size, "decimal", **digits)
            case UUIDType():
                return self._fixed("uuid_fixed", _UUID_BYTES, "uuid")
            case FixedType():
                return self._fixed(f"fixed_{len(kind)}", len(kind))
        if type(kind) not in _PRIMITIVE_TYPES:
            raise TypeError(f"no Avro type for {kind}")
        return _PRIMITIVE_TYPES[type(kind)]

    def _map(self, kind: MapType) -> _AvroType:
        """Keys that are no text make it an array of pairs, whose bytes are the same as a map's."""
        key, key_codec = self._type(kind.key_id, kind.key_type)
        value, value_codec = self._nullable_type(kind.value_id, kind.value_type, optional=not kind.value_required)
        codec = MapBlocks(key_codec, value_codec)
        if key == "string":
            return {"type": "map", "values": value, "key-id": kind.key_id, "value-id": kind.value_id}, codec
        pair = {
            "type": "record",
            "name": f"k{kind.key_id}_v{kind.value_id}",
            "fields": [
                {"name": "key", "type": key, "field-id": kind.key_id},
                {"name": "value", "type": value, "field-id": kind.value_id},
            ],
        }
        return {"type": "array", "logicalType": "map", "items": pair}, codec

    def _fixed(self, name: str, size: int, logical: str | None = None, **more: int) -> _AvroType:
        avro_type: Any = name
        if name not in self.defined:
            self.defined.add(name)
            avro_type = {"type": "fixed", "name": name, "size": size, **more}
            if logical is not None:
                avro_type["logicalType"] = logical
        return avro_type, Fixed(size)


def _build_field(column: NestedField, avro_name: str, avro_type: Any) -> dict[str, Any]:
    field: dict[str, Any] = {"name": avro_name, "type": avro_type, "field-id": column.field_id}
    if avro_name != column.name:
        field["iceberg-field-name"] = column.name
    return {**field, "default": None} if column.optional else field
