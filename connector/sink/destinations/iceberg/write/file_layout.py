"""The plan of an Iceberg table -> the layout of its files, which the plan of other destinations' targets has not."""

from __future__ import annotations

from typing import cast

from connector.iceberg.catalog.table_layout import TableLayout
from connector.sink.model.plan import TablePlan


def file_layout(table: TablePlan) -> TableLayout:
    """Return the layout that `iceberg_tables.IcebergTables` put into a plan."""
    return cast("TableLayout", table.layout)
