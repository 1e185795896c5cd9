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

A value is stored exactly or not at all: a value that does not fit its column makes its record a dead letter, which
names field and type. For values of `before` this applies only where `before` is needed (deletes).
"""
_SCHEMA_TEXT = """\
## With a schema (JSON with schema, Avro)

The schema name and the Connect type decide together. If a name is not listed here, only its Connect type counts; names
that a newer Debezium introduced are logged once (`types=`).

Types that Iceberg does not have become text with all digits. The schema of a column decides this, never a value: a
column is text from its first event on, or never.

- Decimals with a declared precision or scale of more than 38 digits (MySQL's `decimal(65,30)`) are text; with
  `debezium.sink.iceberg.decimal-as-text` others are too.
- TIME of MySQL, MariaDB and Vitess, a time span from -838:59:59 to 838:59:59, is text (`-00:00:01.000000`). The
  connector is known from the schema of an envelope's `source`, or from the header `__debezium.context.connectorName` of
  flattened events (Debezium 3.5 and newer). If there is neither, name the columns in `temporal-as-text`.
- SQL Server's `time`, `datetime2` and `datetimeoffset` have seven decimal places, and are text; so are `NanoTimestamp`
  of Oracle and Db2, and `NanoTime` of Db2. In new tables with `debezium.sink.iceberg.format-version=3`, a
  `NanoTimestamp` (`datetime2`, Oracle's and Db2's) is `timestamp_ns`. The connector is known as for TIME.
- Other dates and times have Iceberg's types, and a value that these do not have (infinity, 24:00:00, years before
  Christ) is a dead letter. Columns that `debezium.sink.iceberg.temporal-as-text` names, directly or by the schema
  name of their type, are ISO 8601 text instead.
- An existing text column stores dates and times as ISO 8601 text without any option; an existing `time`, `timestamp`,
  `date` or decimal column stores the values that fit.
"""
_NESTED_TEXT = """\
Arrays, maps and structs are Iceberg's `list`, `map` and `struct` of the types above, including vectors
(`io.debezium.data.FloatVector`, `DoubleVector`, `SparseDoubleVector`) and geometries (`io.debezium.data.geometry.*`:
wkb and srid; for a point also x and y). Keys of maps may have any type. A column is required if the schema says so and
`preserve-required-property` is on.
"""
_AVRO_TEXT = """\
## Avro

Messages have Confluent's format: a zero byte, four bytes of schema id, and the datum. `connect.name`,
`connect.parameters` and `connect.type` of the writer schema decide. Without them, Avro's types and logical types are
read as:
"""
_AVRO_NESTED_TEXT = """\
`enum` is its symbol (string), `fixed` is bytes. A union with null is optional; a union of several other types is a
struct with one column per type, which has its name: that of a record, an `enum` or a `fixed` type without namespace. A
message that is a union of records is the record that it was written as. An envelope whose images are such unions is a
dead letter. A record that contains itself cannot be a column: its messages become dead letters.
"""
_SCHEMALESS_TEXT = """\
## Without a schema (JSON payloads)

Types come from the table if it exists, otherwise from the values. A later value of a wider type widens the column. A
value of another type is a dead letter, except that a text column stores numbers and booleans as text. Times sent as
numbers stay numbers, and base64 stays text, because nothing identifies them.

Numbers are never converted through a type that cannot hold them. The type of the table's column decides how a number
is read: 1e3 and 1.0 are whole numbers; 0.5 is a dead letter in a column of longs, without effect on other rows; a
decimal or text column stores all digits; text with a decimal point, in keys too, is a number for a decimal column. In
a floating point column a fraction is rounded to the nearest number (`float`: one of up to nine digits, more are a dead
letter), while a whole number is stored exactly or is a dead letter.
If a new column has both fractions and whole numbers that no double can hold, or other values of different types, most
events decide its type, and the others are dead letters. The columns of `before` and `after` have the same types.
The words NaN and Infinity are text where no number is beside them: if a new column's first batch has nothing else, the
column is text, and stores later numbers as text. To have a double there, create the table first, or send schemas.
"""


_SOURCE_TEXT = """\
## On the way out of a table

How the source publishes each type in Debezium's modes, and what is lost if the sink writes it, with its schema, to a
table of the same types. A type without a mode has a single form. A test checks that nothing else is lost.
"""
_SOURCE_SCHEMALESS_TEXT = """\
Without a schema the sink restores whole numbers, floating point numbers, booleans, text, uuids, timestamps with zone,
decimals with `decimal.handling.mode=string`, and lists and structs of these. Others become dead letters if the type
of the table's column is not JSON's.
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
