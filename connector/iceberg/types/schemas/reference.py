"""tables of types -> docs/reference/types.md: every row as the code has it.

`python -m connector.iceberg.types.schemas.reference` writes it again; a test fails when it is stale.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import get_args

import pyarrow as pa
from attrs import evolve

from connector.iceberg.types.schemas.arrow_types import to_iceberg_type
from serde.avro.writer_schema import AVRO_LOGICAL_TYPES, AVRO_PRIMITIVES
from serde.connect import type_table
from serde.connect.values.structured_times import STRUCTURED_TYPES
from serde.emit.row_schema import Primitive
from serde.emit.type_mapping import LOSSES, BinaryMode, DecimalMode, HandlingModes, TimeMode, wire_type
from serde.json.schemaless import INFERRED_TYPES

REFERENCE_PAGE = Path("docs/reference/types.md")
_INTRO_TEXT = """\
# Types on the way into a table

Made from the tables in `serde` by `python -m connector.iceberg.types.schemas.reference`; do not edit.

A value arrives exactly or not at all: one that its column cannot hold becomes a dead letter that names field and type.
A value that cannot be represented in `before` costs the event only where `before` is needed (deletes).
"""
_SCHEMA_TEXT = """\
## With a schema (JSON with schema, Avro)

The schema name decides together with the Connect type; a name that is not here counts as its Connect type,
and one of Debezium's that a newer version brought is named in the log once (`types=`).

What Iceberg has no type for is text with every digit, decided per column by its schema, never by a value: a column is
text from its first event on, or never.

- Decimals whose declared precision or scale is beyond 38 digits (MySQL's `decimal(65,30)`) are text; others too with
  `debezium.sink.iceberg.decimal-as-text`.
- MySQL's and MariaDB's TIME is a span of time from -838:59:59 to 838:59:59, and text (`-00:00:01.000000`). The schema
  of an envelope's `source` tells the connector, and in flattened events the header `__debezium.context.connectorName`
  (Debezium 3.5 and newer); where neither is, name the columns in `temporal-as-text`.
- SQL Server's `time`, `datetime2` and `datetimeoffset` have seven digits behind the point, and are text; so are
  timestamps of more than six digits of Oracle and Db2. In new tables of `debezium.sink.iceberg.format-version=3` what
  comes as `NanoTimestamp` (`datetime2`, Oracle's and Db2's) is `timestamp_ns`. They are told as MySQL's TIME is.
- Other dates and times have Iceberg's types, and a value beyond them (infinity, 24:00:00, years before Christ) is a
  dead letter, unless `debezium.sink.iceberg.temporal-as-text` names the column, or the schema name of its type: then
  they are ISO 8601 text.
- A column that the table has as text takes dates and times as that text, without any option; one that it has as `time`,
  `timestamp`, `date` or decimal takes the values that fit.
"""
_NESTED_TEXT = """\
Arrays, maps and structs are Iceberg's `list`, `map` and `struct` of the types above, among them vectors
(`io.debezium.data.FloatVector`, `DoubleVector`, `SparseDoubleVector`) and geometries (`io.debezium.data.geometry.*`:
wkb and srid, of a point x and y too). Maps may have keys that are no text. A column is required when the schema says so
and `preserve-required-property` is on.
"""
_AVRO_TEXT = """\
## Avro

Frames are Confluent's: a zero byte, four bytes of schema id, the datum. `connect.name`, `connect.parameters` and
`connect.type` of the writer schema decide; where they are missing, Avro's own types and logical types count as these:
"""
_AVRO_NESTED_TEXT = """\
`enum` is its symbol (string), `fixed` is bytes. A union with null is optional; a union of several other types is a
struct with one column per type. A record that contains itself cannot be a column: its messages become dead letters.
"""
_SCHEMALESS_TEXT = """\
## Without a schema (JSON payloads)

Types come from the table if there is one, else from the values. A later value of a wider type widens the column; a
value of another kind than its column is a dead letter, but that a text column takes numbers and booleans as their text.
Numbers that stand for times, and base64, stay what JSON says: nothing tells them apart.

No number passes through a type that has no room for it. What the table's column is decides how it is read: 1e3 and
1.0 are whole numbers, 0.5 in a column of longs is a dead letter and changes no neighbour, a decimal or text column
takes every digit, a text with a point is a number for a decimal column. In a floating column a fraction is the
nearest number, a whole number itself or a dead letter. In a column that no table has yet, whole numbers that no
double holds and fractions exclude each other, as other kinds do: what most events have becomes the type, the others
become dead letters. `before` and `after` are rows of one table: their columns have one type.
"""


_SOURCE_TEXT = """\
## On the way out of a table

What the source makes of each type by Debezium's modes, and what is lost when the sink brings it, with its schema,
into a table of the same types. A type without a mode has one form only. That nothing else is lost is held by a test.
"""
_SOURCE_SCHEMALESS_TEXT = """\
Without a schema these come back: whole numbers, reals, booleans, texts, uuids, timestamps with zone, decimals with
`decimal.handling.mode=string`, and lists and structs of them. The others become dead letters of the sink where the
table's type is not JSON's.
"""


def render_markdown() -> str:
    """The whole page."""
    return "\n".join(
        [
            *(
                _INTRO_TEXT,
                _SCHEMA_TEXT,
                *_render_connect(),
                "",
                _NESTED_TEXT,
                _AVRO_TEXT,
                *_render_avro(),
                "",
                _AVRO_NESTED_TEXT,
                _SCHEMALESS_TEXT,
                *_render_schemaless(),
                "",
            ),
            *(_SOURCE_TEXT, *_render_source(), "", _SOURCE_SCHEMALESS_TEXT),
        ]
    )


def _render_type(arrow: pa.DataType) -> str:
    two, three = (str(to_iceberg_type(arrow, count(1), nanoseconds=new)) for new in (False, True))
    return two if two == three else f"{three} (format version 2: {two})"


def _render_row(kind: str, name: str, row: type_table.TypeMapping) -> str:
    return f"| {kind} | {f'`{name}`' if name else ''} | {_render_type(row.logical)} | {row.note} |"


def _render_connect() -> Iterator[str]:
    yield "| Connect type | Schema name | Iceberg type | What to know |"
    yield "|---|---|---|---|"
    for kind, row in type_table.PRIMITIVE_TYPES.items():
        if kind not in ("float32", "float64"):
            yield _render_row(kind, "", row)
    yield f"| bytes | `{type_table.CONNECT_PREFIX}Decimal` | decimal(p, s) | {type_table.DECIMAL_NOTE} |"
    for (kind, name), row in type_table.SEMANTIC_TYPES.items():
        yield _render_row(kind, name, row)
    for name, row in type_table.STRUCT_TYPES.items():
        yield _render_row("struct", name, row)
    for name, made in STRUCTURED_TYPES.items():
        yield f"| struct | `{name}` | {_render_type(made.logical)} | {made.note} |"


def _render_avro() -> Iterator[str]:
    yield "| Avro type | Connect type and schema name |"
    yield "|---|---|"
    for avro, (_, kind) in AVRO_PRIMITIVES.items():
        yield f"| {avro} | {kind} |"
    for (kind, logical), name in AVRO_LOGICAL_TYPES.items():
        yield f"| {kind} with `{logical}` | {kind} `{name}` |"
    yield f"| bytes or fixed with `decimal` | bytes `{type_table.CONNECT_PREFIX}Decimal` |"


def _render_schemaless() -> Iterator[str]:
    yield "| JSON | Iceberg type |"
    yield "|---|---|"
    for what, arrow in INFERRED_TYPES.items():
        yield f"| {what} | {_render_type(arrow)} |"
    yield "| array, object | list, struct |"


_MODE_OPTIONS = {
    "decimal.handling.mode": ("decimals", get_args(DecimalMode), (Primitive("decimal", 38, 10),)),
    "time.precision.mode": (
        "times",
        get_args(TimeMode),
        tuple(map(Primitive, ("date", "time", "timestamp", "timestamp_ns"))),
    ),
    "binary.handling.mode": ("binaries", get_args(BinaryMode), (Primitive("binary"), Primitive("fixed"))),
}
_INSTANTS = ("timestamptz", "timestamptz_ns")
"""Types that one mode alone writes in another way."""
_TYPES_WITHOUT_MODE = (
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "uuid",
    *_INSTANTS,
    "variant",
)


def _render_source() -> Iterator[str]:
    yield "| Iceberg type | Mode | Connect type and schema name | Lost |"
    yield "|---|---|---|---|"
    for name in _TYPES_WITHOUT_MODE:
        yield _render_source_row(Primitive(name), "", HandlingModes())
    for name in _INSTANTS:
        yield _render_source_row(Primitive(name), "`time.precision.mode=structured`", HandlingModes(times="structured"))
    for option, (field, values, kinds) in _MODE_OPTIONS.items():
        for kind in kinds:
            for value in values:
                yield _render_source_row(kind, f"`{option}={value}`", evolve(HandlingModes(), **{field: value}))


def _render_source_row(kind: Primitive, mode: str, modes: HandlingModes) -> str:
    made = wire_type(kind, modes)
    name = f"{made.type} `{made.name}`" if made.name else made.type
    shown = "decimal(p, s)" if kind.name == "decimal" else kind.name
    return f"| {shown} | {mode} | {name} | {LOSSES.get(made.how, '')} |"


if __name__ == "__main__":
    REFERENCE_PAGE.write_text(render_markdown(), "utf-8")
