"""Values, or keys, that were read before their table was known -> whether its types would give the same. Pure.

One reading of a run is for all tables that its events may name, so that no table's types are given to the reader:
what a column is read into depends on what stands beside it. Where that is what the table's types make of it, or becomes
it without loss, nothing is read again.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from connector.sink.convert.columns.expected_types import find_expected_types, find_own_texts
from connector.sink.convert.events.variant_documents import VariantColumns
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.arrays import children
from serde.events.changes import Changes

_EXACT = {32: 2**24, 64: 2**53}
"""Up to here every whole number is a floating number of so many bits."""


def is_read_alike(change: Changes, table: TablePlan, plan: BatchPlan) -> bool:
    """Tell whether changes of a table are what its types would have made of their messages."""
    if change.optional:
        return not _loses_texts(change, table, plan)
    known = find_expected_types(table, plan)
    variants = table.layout.variants
    variants = variants - VariantColumns.of(plan, None).known if variants else variants
    return is_struct_alike(change.row, known, variants, any_case=plan.case_insensitive)


def is_struct_alike(
    row: pa.StructArray, known: pa.StructType, variants: frozenset[str] = frozenset(), *, any_case: bool = False
) -> bool:
    """Tell whether columns hold what the known types would have made of their values.

    variants: columns that take each value as it was written, of which the reader did not know.
    """
    kinds = {field.name.lower(): field.type for field in known} if any_case else {}
    kinds |= {field.name: field.type for field in known}
    for field, column in zip(row.type, children(row), strict=True):
        name = field.name.lower() if any_case and field.name not in kinds else field.name
        if name in variants and not pa.types.is_null(field.type):
            return False
        if name in kinds and not _is_alike(column, kinds[name]):
            return False
    return True


def _loses_texts(change: Changes, table: TablePlan, plan: BatchPlan) -> bool:
    """Tell whether moments with a schema become texts, or nanoseconds, whose digits microseconds have not."""
    own = find_own_texts(table, any_case=plan.case_insensitive)
    own = frozenset(map(str.lower, own)) if plan.case_insensitive else own
    moments = (field.name for field in change.row.type if pa.types.is_temporal(field.type))
    return any((name.lower() if plan.case_insensitive else name) in own for name in moments)


def _is_alike(column: pa.Array, kind: pa.DataType) -> bool:
    found, types = column.type, pa.types
    if found == kind or types.is_null(found) or types.is_null(kind) or _is_of_no_kind(kind):
        return True
    if types.is_struct(found) and types.is_struct(kind):
        return is_struct_alike(column, kind)
    if types.is_list(found) and (types.is_list(kind) or types.is_large_list(kind)):
        return _is_alike(column.flatten(), kind.value_type)
    if types.is_string(found):
        # Numbers beside texts were read as their digits.
        return bool(types.is_decimal(kind) or types.is_large_string(kind))
    if types.is_integer(found) and types.is_floating(kind):
        limits = pc.min_max(column)
        return all(abs(limit.as_py() or 0) <= _EXACT.get(kind.bit_width, 0) for limit in limits.values())
    return bool(types.is_integer(found) and (types.is_integer(kind) or types.is_decimal(kind)))


def _is_of_no_kind(kind: pa.DataType) -> bool:
    """Tell whether the reader takes nothing from such a type: JSON has no kind for it."""
    types = pa.types
    bits = types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    return bool(bits or isinstance(kind, pa.UuidType) or types.is_temporal(kind) or types.is_map(kind))
