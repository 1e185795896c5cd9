"""A signal's filter + a snapshot's schema -> a condition on rows, as Spark has them (see `catalog.snapshot_schema`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from functools import reduce
from typing import Any, cast
from uuid import UUID

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    BoundTerm,
    LiteralPredicate,
    Not,
    Or,
    SetPredicate,
)
from pyiceberg.expressions.literals import DecimalLiteral, Literal
from pyiceberg.expressions.visitors import (
    BooleanExpressionVisitor,
    BoundBooleanExpressionVisitor,
    bind,
    rewrite_not,
    visit,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from connector.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXACT = Context(prec=100)
_BITS = 64
"""Of the largest whole numbers that columns have, and the call that makes a literal takes."""


def to_condition(expression: BooleanExpression, schema: Schema, row: Column) -> Column:
    """Return a condition on a struct of a row.

    Args:
        expression: a filter, unbound.
        schema: of the row.
        row: a struct of the schema's columns by their names.

    Raises:
        ConfigError: a column is not there, or a value is none of its column's type.
    """
    try:
        exact = visit(rewrite_not(expression), _ExactDecimals(schema))
        bound = bind(schema, exact, case_sensitive=True)
        return visit(bound, _ToColumn(schema, row))
    except (ValueError, TypeError, ArithmeticError) as error:
        raise ConfigError(
            f"a filter does not fit the table: {type(error).__name__}; compare columns that the table has with "
            "values of their types"
        ) from error


class _ExactDecimals(BooleanExpressionVisitor[BooleanExpression]):
    """Gives decimals the digits of their columns: PyIceberg takes no others, and rounds them for whole numbers.

    Raises ValueError: one has more digits than its column.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        return Not(child_result)

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_unbound_predicate(self, predicate: Any) -> BooleanExpression:
        kind: IcebergType = predicate.term.bind(self._schema, case_sensitive=True).ref().field.field_type
        if isinstance(predicate, LiteralPredicate):
            return type(predicate)(predicate.term, _fit_decimal(predicate.literal, kind))
        if isinstance(predicate, SetPredicate):
            return type(predicate)(predicate.term, {_fit_decimal(one, kind) for one in predicate.literals})
        return cast("BooleanExpression", predicate)

    def visit_bound_predicate(self, predicate: Any) -> BooleanExpression:  # noqa: ARG002
        raise TypeError("not bound before")


def _fit_decimal(literal: Literal[Any], kind: IcebergType) -> Literal[Any]:
    if not isinstance(literal, DecimalLiteral) or not isinstance(kind, DecimalType | IntegerType | LongType):
        return literal
    digits = kind.scale if isinstance(kind, DecimalType) else 0
    exact = literal.value.quantize(Decimal(1).scaleb(-digits), context=_EXACT)
    if exact != literal.value:
        raise ValueError("a number has more digits than its column")
    return DecimalLiteral(exact)


class _ToColumn(BoundBooleanExpressionVisitor[Column]):
    """Builds the condition from the bottom up; null is neither equal nor unequal, as in SQL."""

    def __init__(self, schema: Schema, row: Column) -> None:
        self._schema, self._row = schema, row

    def visit_true(self) -> Column:
        return F.lit(True)

    def visit_false(self) -> Column:
        return F.lit(False)

    def visit_not(self, child_result: Column) -> Column:
        return ~child_result

    def visit_and(self, left_result: Column, right_result: Column) -> Column:
        return left_result & right_result

    def visit_or(self, left_result: Column, right_result: Column) -> Column:
        return left_result | right_result

    def visit_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        return self._column(term).isin(*(_value(term, one) for one in sorted(literals, key=repr)))

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> Column:
        return ~self.visit_in(term, literals)

    def visit_is_nan(self, term: BoundTerm) -> Column:
        return F.isnan(self._column(term))

    def visit_not_nan(self, term: BoundTerm) -> Column:
        return ~F.isnan(self._column(term))

    def visit_is_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNull()

    def visit_not_null(self, term: BoundTerm) -> Column:
        return self._column(term).isNotNull()

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) == _value(term, literal)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) != _value(term, literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) >= _value(term, literal)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) > _value(term, literal)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) < _value(term, literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term) <= _value(term, literal)

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return self._column(term).startswith(str(literal.value))

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> Column:
        return ~self.visit_starts_with(term, literal)

    def visit_unbound_predicate(self, predicate: Any) -> Column:  # noqa: ARG002
        raise TypeError("bound before")

    def visit_bound_predicate(self, predicate: BoundPredicate) -> Column:
        return super().visit_bound_predicate(predicate)

    def _column(self, term: BoundTerm) -> Column:
        return reduce(Column.getField, _find_names(self._schema.as_struct(), term.ref().field.field_id), self._row)


def _find_names(struct: StructType, field_id: int) -> tuple[str, ...]:
    """Return the names from the top on of a field; they may have dots themselves."""
    for field in struct.fields:
        if field.field_id == field_id:
            return (field.name,)
        if isinstance(field.field_type, StructType):
            names = _find_names(field.field_type, field_id)
            if names:
                return (field.name, *names)
    return ()


def _value(term: BoundTerm, literal: Any) -> Column:
    kind: IcebergType = term.ref().field.field_type
    value = literal.value if isinstance(literal, Literal) else literal
    if isinstance(value, int) and value.bit_length() >= _BITS:
        raise OverflowError("no column has such a number")
    make = _LITERALS.get(type(kind))
    return F.lit(value) if make is None else make(value, kind)


def _decimal(value: Any, kind: Any) -> Column:
    return F.lit(str(value)).cast(f"decimal({kind.precision},{kind.scale})")


def _uuid(value: Any, _: Any) -> Column:
    return F.lit(str(value if isinstance(value, UUID) else UUID(bytes=bytes(value))))


def _bytes(value: Any, _: Any) -> Column:
    return F.lit(bytearray(value))


_LITERALS: Mapping[type, Callable[[Any, Any], Column]] = {
    DateType: lambda value, _: F.date_from_unix_date(F.lit(value)),
    TimestampType: lambda value, _: F.lit(_to_iso(value)).cast("timestamp_ntz"),
    TimestamptzType: lambda value, _: F.timestamp_micros(F.lit(value)),
    DecimalType: _decimal,
    UUIDType: _uuid,
    BinaryType: _bytes,
    FixedType: _bytes,
}
"""How a value is written for Spark, where it is not as Iceberg has it."""


def _to_iso(micros: int) -> str:
    return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat()
