"""Columns, types of a table -> where they lack what the types require within structs, lists and maps (pure).

A field has a path: the names from the top on, with `element`, `key` and `value` for what a list and a map hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.types.dotted_names import Path
from serde.arrays import Ints, Mask, child_at, valid_mask
from serde.connect.schema_node import ELEMENT, KEY, VALUE


@attrs.frozen(eq=False)
class MissingValue:
    """A required field that some rows lack: `rows` marks them. `absent`: the rows' own type has no such field.

    `in_key`: it is part of a map's key, which Iceberg does not change.
    """

    path: Path
    rows: Mask
    absent: bool
    in_key: bool


@attrs.frozen(eq=False)
class _Level:
    """Where a walk is: for each value of this level its row (None: values are the rows), of so many rows."""

    path: Path
    owners: Ints | None
    count: int
    in_key: bool = False

    def tell(self, name: str, lacking: Mask, *, absent: bool = False) -> Iterator[MissingValue]:
        if not lacking.any():
            return
        rows = lacking
        if self.owners is not None:
            rows = np.zeros(self.count, np.bool_)
            rows[self.owners[lacking]] = True
        yield MissingValue((*self.path, name), rows, absent, self.in_key)

    def enter(self, name: str) -> _Level:
        return attrs.evolve(self, path=(*self.path, name))

    def repeat(self, sizes: Ints) -> _Level:
        owners = np.arange(self.count) if self.owners is None else self.owners
        return attrs.evolve(self, owners=np.repeat(owners, sizes))


def requires_within(kind: pa.DataType) -> bool:
    """Tell whether something within a type is required; a map's keys themselves always are, and do not count."""
    if pa.types.is_struct(kind):
        return any(not field.nullable or requires_within(field.type) for field in kind)
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or requires_within(kind.item_type) or requires_within(kind.key_type)
    if pa.types.is_list(kind):
        return not kind.value_field.nullable or requires_within(kind.value_type)
    return False


def find_missing_values(column: pa.Array, field: pa.Field) -> Iterator[MissingValue]:
    """Find what a column of rows, or of events, lacks within its values that a table's field requires there.

    What is nested in one of the two and not in the other is left out: it does not fit anyway. Cost: a mask per field
    that is required, or that another is within.
    """
    yield from _walk(column, field.type, _Level((field.name,), None, len(column)))


def _walk(column: pa.Array, kind: pa.DataType, level: _Level) -> Iterator[MissingValue]:
    if not requires_within(kind):
        return
    types = pa.types
    if types.is_struct(kind) and types.is_struct(column.type):
        yield from _walk_struct(column, kind, level)
    elif types.is_map(kind) and types.is_map(column.type):
        sizes, pairs = _count_items(column), pa.array(_place_items(column))
        level = level.repeat(sizes)
        yield from _walk(column.keys.take(pairs), kind.key_type, attrs.evolve(level.enter(KEY), in_key=True))
        yield from _walk_items(column.items.take(pairs), kind.item_field, VALUE, level)
    elif types.is_list(kind) and types.is_list(column.type):
        yield from _walk_items(column.flatten(), kind.value_field, ELEMENT, level.repeat(_count_items(column)))


def _walk_struct(column: pa.StructArray, kind: pa.StructType, level: _Level) -> Iterator[MissingValue]:
    present = valid_mask(column)
    for field in kind:
        place = column.type.get_field_index(field.name)
        if place < 0:
            if not field.nullable:
                yield from level.tell(field.name, present, absent=True)
            continue
        child = child_at(column, place)
        if not field.nullable:
            yield from level.tell(field.name, present & ~valid_mask(child))
        yield from _walk(child, field.type, level.enter(field.name))


def _walk_items(items: pa.Array, field: pa.Field, name: str, level: _Level) -> Iterator[MissingValue]:
    if not field.nullable:
        yield from level.tell(name, ~valid_mask(items))
    yield from _walk(items, field.type, level.enter(name))


def _count_items(column: pa.ListArray) -> Ints:
    """Count the items of each row, of a map its pairs; none where the row is null."""
    return np.where(valid_mask(column), np.diff(np.asarray(column.offsets)), 0)


def _place_items(column: pa.ListArray) -> Ints:
    """Tell where the items of all rows are, in what the column's offsets are about; Arrow flattens no sliced map."""
    sizes = _count_items(column)
    before = np.cumsum(sizes) - sizes
    return np.repeat(np.asarray(column.offsets)[:-1] - before, sizes) + np.arange(int(sizes.sum()))


def make_field_optional(fields: Iterable[pa.Field], path: Path) -> list[pa.Field]:
    """Return fields of which the one at a path is not required; what has no such path stays as it is."""
    return [_loosen(field, path[1:]) if field.name == path[0] else field for field in fields]


def _loosen(field: pa.Field, path: Path) -> pa.Field:
    kind = field.type
    if not path:
        return field.with_nullable(True)
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct(make_field_optional(kind, path)))
    if pa.types.is_map(kind) and path[0] == VALUE:
        return field.with_type(pa.map_(kind.key_field, _loosen(kind.item_field, path[1:])))
    if pa.types.is_list(kind) and path[0] == ELEMENT:
        return field.with_type(pa.list_(_loosen(kind.value_field, path[1:])))
    return field
