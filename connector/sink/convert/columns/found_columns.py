"""A table that another tool made -> which of its columns hold values otherwise than tables of ours, and these values.

Debezium Server Iceberg has times of events, which are milliseconds, in columns of instants; times of day and decimals
of any scale it keeps as messages have them: numbers, and structs. Iceberg's Kafka Connect sink does so with all types
of Debezium's own, dates among them. A column of ours that held numbers, and gets dates, is another thing: a changed
type (`columns.type_changes`). Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.catalog.retention_properties import EXPIRE_SNAPSHOTS_PROPERTY
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.types.values.conversion import convert
from serde.arrays import children, with_columns
from serde.connect.text_columns import name_plain_column
from serde.connect.values.temporal import timestamp_from_ms
from serde.events.changes import Changes, filter_changes
from serde.faults import RecordError

INSTANT_COLUMNS = frozenset({"__ts_ms", "__source_ts_ms"})
"""Times of events in milliseconds: instants in tables of Debezium Server, numbers in others."""
_TRANSFORMED = "_cdc"
"""The column that Iceberg's transform of Debezium's events adds."""


def find_plain_columns(layout: RowLayout, *, any_case: bool = False) -> frozenset[str]:
    """Return the columns that hold numbers and structs as messages have them, as `text_columns` takes such.

    `any_case`: whatever the case of the fields that go to them.
    """
    return _name_columns(layout.plain_paths, any_case=any_case) if _is_found(layout) else frozenset()


def find_shared_plain(layouts: Sequence[RowLayout], *, any_case: bool = False) -> frozenset[str]:
    """Return those of several tables, all found ones: columns that some of them have so, and none has otherwise."""
    if not layouts or not all(map(_is_found, layouts)):
        return frozenset()
    plain = (_name_columns(one.plain_paths, any_case=any_case) for one in layouts)
    typed = (_name_columns(one.typed_paths, any_case=any_case) for one in layouts)
    return frozenset[str]().union(*plain).difference(*typed)


def read_instants(change: Changes, layout: RowLayout) -> tuple[Changes | None, list[RecordError]]:
    """Return changes whose times of events are instants where the table has such, without those that are none.

    Milliseconds beyond the years of tables are none; there are no changes where all have such.
    """
    columns, names = layout.columns, change.row.type.names
    wanted = {
        name: columns.field(name).type
        for name in INSTANT_COLUMNS.intersection(names)
        if is_instant(layout, name) and pa.types.is_integer(change.row.type.field(name).type)
    }
    if not wanted:
        return change, []
    faults, keep, made = list[RecordError](), np.ones(len(change.rows), np.bool_), dict[str, pa.Array]()
    columns = dict(zip(names, children(change.row), strict=True))
    for name, kind in wanted.items():
        moments, bad = timestamp_from_ms(columns[name].cast(pa.int64()))
        made[name], unfit = convert(moments.view(pa.timestamp("us", kind.tz)), kind)
        for mask in (bad, unfit):
            if mask is not None:
                keep &= ~mask
                reason = f"column {name}: a number of milliseconds that does not fit the table's {kind}"
                faults += [RecordError(int(row), "TASK_PUT", reason) for row in change.rows[mask]]
    change = attrs.evolve(change, row=with_columns(change.row, made))
    return (change if keep.all() else filter_changes(change, keep) if keep.any() else None), faults


def count_milliseconds(column: pa.Array, name: str) -> pa.Array:
    """Return the instants of such a column as the numbers that other tables have; other columns stay as they are."""
    if name not in INSTANT_COLUMNS or not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())


def has_dates(layout: RowLayout, name: str) -> bool:
    """Tell whether a table has a column of this name that tells, as a number or an instant, how old its rows are."""
    position = layout.columns.get_field_index(name)
    whole = position >= 0 and pa.types.is_integer(layout.columns.field(position).type)
    return whole or (name in INSTANT_COLUMNS and is_instant(layout, name))


def _is_found(layout: RowLayout) -> bool:
    """Tell whether another tool made a table; those of ours have the property, which others may have been given."""
    if not isinstance(layout, TableLayout):
        return False
    by_name = any(is_instant(layout, name) for name in INSTANT_COLUMNS) or _TRANSFORMED in layout.columns.names
    return by_name or EXPIRE_SNAPSHOTS_PROPERTY not in layout.properties


def is_instant(layout: RowLayout, name: str) -> bool:
    """Tell whether a table has a column of this name that holds instants."""
    position = layout.columns.get_field_index(name)
    return position >= 0 and pa.types.is_timestamp(layout.columns.field(position).type)


@lru_cache(maxsize=1024)
def _name_columns(paths: frozenset[str], *, any_case: bool) -> frozenset[str]:
    """Return the words for columns, and fields in their structs, as for those that hold plain values."""
    return frozenset(name_plain_column(path, any_case=any_case) for path in paths)
