"""An Iceberg schema -> plain descriptions of its columns, which the wire's side understands (pure)."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

from connector.errors import FatalError
from serde.emit.forms import Modes, form
from serde.emit.kinds import Items, Kind, Member, Pairs, Plain, Record


def record(schema: Schema) -> Record:
    """Describe all columns, in the table's order."""
    return _record(schema.as_struct())


def _record(struct: StructType) -> Record:
    return Record(tuple(_member(field) for field in struct.fields))


def _member(field: NestedField) -> Member:
    return Member(field.name, kind(field.field_type), not field.required)


def kind(made: IcebergType) -> Kind:
    """Describe one type."""
    match made:
        case StructType():
            return _record(made)
        case ListType():
            return Items(kind(made.element_type), not made.element_required)
        case MapType():
            return Pairs(kind(made.key_type), kind(made.value_type), not made.value_required)
        case DecimalType():
            return Plain("decimal", made.precision, made.scale)
        case FixedType():
            return Plain("fixed")
        case _:
            return Plain(str(made))


def check(table: str, row: Record, modes: Modes) -> None:
    """See that every column has a form on the wire.

    Raises:
        FatalError: one has none; names the table, the columns and what to do.
    """
    unfit = [path for path, plain in _plains(row, "") if not _has_form(plain, modes)]
    if unfit:
        columns = ", ".join(unfit)
        raise FatalError(f"table {table}: no Debezium type for {columns}; leave them out with column.exclude.list")


def _plains(made: Kind, path: str) -> list[tuple[str, Plain]]:
    match made:
        case Plain():
            return [(f"{path} ({made.name})", made)]
        case Record():
            return [found for m in made.members for found in _plains(m.kind, f"{path}.{m.name}" if path else m.name)]
        case Items():
            return _plains(made.item, path)
        case Pairs():
            return [*_plains(made.key, path), *_plains(made.value, path)]


def _has_form(plain: Plain, modes: Modes) -> bool:
    try:
        form(plain, modes)
    except ValueError:
        return False
    return True
