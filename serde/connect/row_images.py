"""wire rows -> logical rows: the table of types applied to whole messages, and the rows that do not fit left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import children
from serde.connect.logical_columns import ConversionErrors, replace_children, to_logical
from serde.connect.schema_node import Struct
from serde.messages import Rows


def to_logical_rows(
    rows: Rows, wire: pa.StructArray, node: Struct
) -> tuple[Rows, pa.StructArray, list[tuple[int, str]]]:
    """Logical columns without the rows that hold a value which cannot be represented; those with the reason.

    Such a value in `before` costs the row only where there is no `after`: elsewhere the image is not needed and
    becomes null.
    """
    misfits, images = ConversionErrors(), ConversionErrors()
    made = [
        to_logical(column, child.node, child.name, None, images if child.name == "before" else misfits)
        for child, column in zip(node.fields, children(wire), strict=True)
    ]
    if images.found:
        made = _without_images(made, node, images, misfits)
    fields = replace_children(
        wire, made, [pa.field(child.name, made[index].type) for index, child in enumerate(node.fields)]
    )
    if not misfits.found:
        return rows, fields, []
    unfit = [(int(rows[at]), reason) for at, reason in sorted(misfits.found.items())]
    keep = np.ones(len(rows), np.bool_)
    keep[list(misfits.found)] = False
    return rows[keep], fields.filter(pa.array(keep)), unfit


def _without_images(
    made: list[pa.Array], node: Struct, images: ConversionErrors, misfits: ConversionErrors
) -> list[pa.Array]:
    """Moves the misfits of `before` that matter to `misfits` and sets the other images to null."""
    names = [child.name for child in node.fields]
    after = made[names.index("after")].is_valid().to_numpy(zero_copy_only=False) if "after" in names else None
    index = np.arange(len(made[0]))
    for at, reason in images.found.items():
        if after is None or not after[at]:
            misfits.found.setdefault(at, reason)
    gone = np.isin(index, [at for at in images.found if at not in misfits.found])
    before = names.index("before")
    if gone.any():
        made[before] = made[before].take(pa.array(index, mask=gone))
    return made
