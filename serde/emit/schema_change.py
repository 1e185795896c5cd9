"""A table's columns as they are from now on -> Debezium's schema change event.

Schema names and fields: Debezium 3.7 (`SchemaFactory`: schema change key and value, Change, Table, Column). Type codes:
`java.sql.Types`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from serde.emit.connect_schema import Document, array, primitive, struct
from serde.emit.envelope import SourceInfo, source_schema
from serde.emit.row_schema import Primitive, RowField, RowList, RowMap, RowStruct, RowType
from serde.emit.side_topics import SideMessage

_SCHEMA_PREFIX = "io.debezium.connector.schema."
_ICEBERG_PREFIX = "io.debezium.connector.iceberg."
_JDBC_TYPES = {
    "boolean": 16,
    "int": 4,
    "long": -5,
    "float": 7,
    "double": 8,
    "decimal": 3,
    "date": 91,
    "time": 92,
    "timestamp": 93,
    "timestamp_ns": 93,
    "timestamptz": 2014,
    "timestamptz_ns": 2014,
    "string": 12,
    "uuid": 1111,
    "fixed": -2,
    "binary": -3,
}
_OTHER, _STRUCT, _ARRAY, _MAP = 1111, 2002, 2003, 2000
_COLUMN: Mapping[str, tuple[str, bool]] = {
    "name": ("string", False),
    "jdbcType": ("int32", False),
    "nativeType": ("int32", True),
    "typeName": ("string", False),
    "typeExpression": ("string", True),
    "charsetName": ("string", True),
    "length": ("int32", True),
    "scale": ("int32", True),
    "position": ("int32", False),
    "optional": ("boolean", True),
    "autoIncremented": ("boolean", True),
    "generated": ("boolean", True),
    "comment": ("string", True),
    "defaultValueExpression": ("string", True),
}


def schema_change_key(database: str) -> SideMessage:
    """The key of a schema change."""
    fields = {"databaseName": primitive("string", optional=False)}
    return SideMessage(
        struct(fields, optional=False, name=_ICEBERG_PREFIX + "SchemaChangeKey", version=1), {"databaseName": database}
    )


def schema_change(origin: SourceInfo, row: RowStruct, keys: Sequence[str], *, creates: bool) -> SideMessage:
    """The value: the whole table as it is at the snapshot; `creates` for the first event of a table, else it alters."""
    change = {
        "type": "CREATE" if creates else "ALTER",
        "id": f'"{origin.database}"."{origin.schema}"."{origin.table}"',
        "table": {
            "defaultCharsetName": None,
            "primaryKeyColumnNames": list(keys),
            "columns": [_column(member, position) for position, member in enumerate(row.members, 1)],
            "comment": None,
        },
    }
    payload = {
        "source": origin.document(),
        "ts_ms": origin.times()["ts_ms"],
        "databaseName": origin.database,
        "schemaName": origin.schema,
        "ddl": None,
        "tableChanges": [change],
    }
    return SideMessage(_schema(), payload)


def _column(member: RowField, position: int) -> dict[str, Any]:
    name, code = _type_name_and_code(member.kind)
    decimal = member.kind if isinstance(member.kind, Primitive) and member.kind.name == "decimal" else None
    return {
        "name": member.name,
        "jdbcType": code,
        "nativeType": None,
        "typeName": name,
        "typeExpression": name,
        "charsetName": None,
        "length": decimal.precision if decimal else None,
        "scale": decimal.scale if decimal else None,
        "position": position,
        "optional": member.optional,
        "autoIncremented": False,
        "generated": False,
        "comment": None,
        "defaultValueExpression": None,
    }


def _type_name_and_code(kind: RowType) -> tuple[str, int]:
    """Iceberg's name of a type, and the code nearest to it."""
    match kind:
        case Primitive():
            return kind.name, _JDBC_TYPES.get(kind.name, _OTHER)
        case RowStruct():
            return "struct", _STRUCT
        case RowList():
            return "list", _ARRAY
        case RowMap():
            return "map", _MAP


def _schema() -> Document:
    columns = {name: primitive(kind, optional=optional) for name, (kind, optional) in _COLUMN.items()}
    text = primitive("string", optional=True)
    table = struct(
        {
            "defaultCharsetName": text,
            "primaryKeyColumnNames": array(primitive("string", optional=False), optional=True),
            "columns": array(
                struct(columns, optional=False, name=_SCHEMA_PREFIX + "Column", version=1), optional=False
            ),
            "comment": text,
        },
        optional=True,
        name=_SCHEMA_PREFIX + "Table",
        version=1,
    )
    change = struct(
        {"type": primitive("string", optional=False), "id": primitive("string", optional=False), "table": table},
        optional=False,
        name=_SCHEMA_PREFIX + "Change",
        version=1,
    )
    fields = {
        "source": source_schema(),
        "ts_ms": primitive("int64", optional=False),
        "databaseName": text,
        "schemaName": text,
        "ddl": text,
        "tableChanges": array(change, optional=False),
    }
    return struct(fields, optional=False, name=_ICEBERG_PREFIX + "SchemaChangeValue", version=1)
