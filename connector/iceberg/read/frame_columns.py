"""A table's rows -> frames of them (`table_reader`): what their columns are called, for the driver and for tasks."""

from __future__ import annotations

FILE_COLUMN, POSITION_COLUMN, ROW_ID_COLUMN, SEQUENCE_COLUMN, DELETED_COLUMN = (
    "file",
    "pos",
    "row_id",
    "sequence",
    "deleted",
)
"""Where a row is, which one it is, which commit changed it last, and whether a delete has hit it."""

LINEAGE_COLUMNS = (ROW_ID_COLUMN, SEQUENCE_COLUMN)
"""Those that rows keep where they are written again (format 3)."""


def column_name(place: int) -> str:
    """Name the column at this place of the schema."""
    return f"c{place}"


def quote(name: str) -> str:
    """Write a name as Spark's SQL has it."""
    return "`{}`".format(name.replace("`", "``"))
