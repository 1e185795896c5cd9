"""wire rows -> logical rows: the table of types applied to whole columns, and the rows that do not fit left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from attrs import define, field

from serde.arrays import Mask, children, valid_mask
from serde.connect.schema_node import Leaf, List, Map, Node, Struct, is_plain
from serde.connect.text_columns import find_text_option
from serde.messages import Rows

_REASON = "value cannot be represented"


@define(eq=False)
class ConversionErrors:
    """Positions (of the top-level array) with a value that cannot be represented, first reason kept."""

    found: dict[int, str] = field(factory=dict)

    def add(self, rows: Rows, path: str, label: str, option: str | None = None) -> None:
        """Notes that the field at `path` of these rows does not fit the type `label`; `option`: what makes it text."""
        remedy = "" if option is None else f"; a text column holds it ({option})"
        for row in rows.tolist():
            self.found.setdefault(row, f"field {path}: {_REASON} ({label}){remedy}")


def to_logical_rows(
    rows: Rows, wire: pa.StructArray, node: Struct
) -> tuple[Rows, pa.StructArray, list[tuple[int, str]]]:
    """Logical columns without the rows that hold a value which cannot be represented; those with the reason.

    Such a value in `before` costs the row only where there is no `after`: elsewhere it alone becomes null, as what
    stands beside it may be the row's key.
    """
    misfits, images = ConversionErrors(), ConversionErrors()
    columns = [
        to_logical(column, child.node, child.name, None, images if child.name == "before" else misfits)
        for child, column in zip(node.fields, children(wire), strict=True)
    ]
    if images.found:
        _note_needed_images(columns, node, images, misfits)
    fields = replace_children(
        wire, columns, [pa.field(child.name, columns[index].type) for index, child in enumerate(node.fields)]
    )
    if not misfits.found:
        return rows, fields, []
    unfit = [(int(rows[at]), reason) for at, reason in sorted(misfits.found.items())]
    keep = np.ones(len(rows), np.bool_)
    keep[list(misfits.found)] = False
    return rows[keep], fields.filter(pa.array(keep)), unfit


def _note_needed_images(
    columns: list[pa.Array], node: Struct, images: ConversionErrors, misfits: ConversionErrors
) -> None:
    """Moves the misfits of `before` that matter to `misfits`: those of events without `after`."""
    names = [child.name for child in node.fields]
    after = columns[names.index("after")].is_valid().to_numpy(zero_copy_only=False) if "after" in names else None
    for at, reason in images.found.items():
        if after is None or not after[at]:
            misfits.found.setdefault(at, reason)


def to_logical(array: pa.Array, node: Node, path: str, rows: Rows | None, misfits: ConversionErrors) -> pa.Array:
    """Converts `array`; `rows` maps its positions to top-level ones (None: they are the same)."""
    if is_plain(node):
        return array
    match node:
        case Leaf():
            return _convert_leaf(array, node, path, rows, misfits)
        case Struct():
            return _convert_struct(array, node, path, rows, misfits)
        case List():
            return _convert_list(array, node, path, rows, misfits)
        case Map():
            return _convert_map(array, node, path, rows, misfits)


def _convert_leaf(array: pa.Array, node: Leaf, path: str, rows: Rows | None, misfits: ConversionErrors) -> pa.Array:
    if node.convert is None:
        return array
    converted, bad = node.convert(array)
    if bad is not None:
        _add_misfits(array, bad, node, path, rows, misfits)
    return converted


def _add_misfits(
    array: pa.Array, bad: Mask, node: Leaf | Struct, path: str, rows: Rows | None, misfits: ConversionErrors
) -> None:
    where = np.flatnonzero(bad).astype(np.int64)
    option, held = find_text_option(node, array.take(pa.array(where)))
    owners = where if rows is None else rows[where]
    label = node.label if isinstance(node, Leaf) else node.name or "struct"
    misfits.add(owners[held], path, label, option)
    misfits.add(owners[~held], path, label)


def _convert_struct(array: pa.Array, node: Struct, path: str, rows: Rows | None, misfits: ConversionErrors) -> pa.Array:
    prefix = f"{path}." if path else ""
    columns = [
        to_logical(column, child.node, prefix + child.name, rows, misfits)
        for child, column in zip(node.fields, children(array), strict=True)
    ]
    whole = replace_children(
        array, columns, [pa.field(child.name, column.type) for child, column in zip(node.fields, columns, strict=True)]
    )
    if node.value is None:
        return whole
    value, bad = node.value.convert(whole)
    if bad is not None:
        _add_misfits(whole, bad, node, path, rows, misfits)
    return value


def replace_children(array: pa.StructArray, columns: list[pa.Array], fields: list[pa.Field]) -> pa.StructArray:
    """A struct array with other children and the same nulls."""
    if not columns:
        # Arrow takes the length from the children.
        return pa.array([{} if there else None for there in valid_mask(array)], pa.struct([]))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _convert_list(array: pa.Array, node: List, path: str, rows: Rows | None, misfits: ConversionErrors) -> pa.Array:
    offsets, low, high = _item_bounds(array)
    values = array.values.slice(low, high - low)
    inner = to_logical(values, node.item, path, _item_owners(offsets, rows), misfits)
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), inner, mask=mask)


def _convert_map(array: pa.Array, node: Map, path: str, rows: Rows | None, misfits: ConversionErrors) -> pa.Array:
    offsets, low, high = _item_bounds(array)
    owners = _item_owners(offsets, rows)
    keys = to_logical(array.keys.slice(low, high - low), node.key, path, owners, misfits)
    items = to_logical(array.items.slice(low, high - low), node.value, path, owners, misfits)
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, mask=mask)


def _item_bounds(array: pa.Array) -> tuple[Rows, int, int]:
    """Offsets from zero, and which part of the values they stand for."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    low, high = int(offsets[0]), int(offsets[-1])
    return offsets - low, low, high


def _item_owners(offsets: Rows, rows: Rows | None) -> Rows:
    """For each item the top-level row that holds it."""
    owners = np.repeat(np.arange(len(offsets) - 1, dtype=np.int64), np.diff(offsets))
    return owners if rows is None else rows[owners]
