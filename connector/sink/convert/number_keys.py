"""Key columns -> the same with one text for each number: rows are found by their text. Pure.

A decimal that Iceberg has no type for is text, with as many digits behind the point as its event wrote: 1, 1.0 and 1.00
are one key at their source.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from connector.iceberg.types.nested_columns import find_path, read_path, set_column
from serde.connect.values.decimal_text import drop_trailing_zeros


def unify_numbers(columns: dict[str, pa.Array], names: Iterable[str]) -> None:
    """Give equal numbers one text, in the columns of these names that are text, dotted where they lie in structs."""
    for name in names:
        path = find_path([pa.field(each, column.type) for each, column in columns.items()], name)
        leaf = None if path is None else read_path(columns[path[0]], path[1:])
        if path is not None and leaf is not None and pa.types.is_string(leaf.type):
            set_column(columns, path, drop_trailing_zeros(leaf))
