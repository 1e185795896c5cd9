"""The values of a row's key -> the same as they are compared: none is null, and 0.0 and -0.0 are one.

Rows whose keys have nulls would share a record key, or have no document id: compaction, upserts and deletes would take
one for the other. So such a row is never sent (docs/decisions/0031). It is refused in Spark's own code where no Python
takes part, and by `refuse_nulls` in Python workers: what fails in front of one breaks it for tasks that come later.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from connector.errors import FatalError
from serde.emit.row_schema import Primitive, RowType

ROW_ID_FIELD = "_row_id"
MISSING_ROW_ID = (
    "a row has no _row_id: it is from before the table's upgrade to format version 3, and no commit has numbered it "
    "since. Set identifier columns (ALTER TABLE ... SET IDENTIFIER FIELDS) or message.key.columns; or let a commit "
    "number the rows (CALL system.rewrite_data_files) and read the table again in full"
)


def describe_null_key(name: str) -> str:
    """Say why a row is not sent whose key has a null in this column, and what to do."""
    if name == ROW_ID_FIELD:
        return MISSING_ROW_ID
    return (
        f"a row's key has a null in column {name}: nothing tells such rows apart, so none is sent. Let "
        "message.key.columns name columns that are never null, or leave it out for the table's identifier columns "
        "(ALTER TABLE ... SET IDENTIFIER FIELDS); then, or once the rows have values, read the table again in full"
    )


def unite_zeros(column: Column, kind: RowType) -> Column:
    """Return a key's column in which 0.0 and -0.0 are one, as where rows are paired."""
    if isinstance(kind, Primitive) and kind.name in ("float", "double"):
        return F.when(column == 0, F.lit(0.0).cast(kind.name)).otherwise(column)
    return column


def require_key_column(column: Column, name: str) -> Column:
    """Return a key's column; the task fails at the first row that has a null there."""
    return F.coalesce(column, F.raise_error(F.lit(describe_null_key(name))))


def refuse_nulls(names: Sequence[str], columns: Sequence[pa.Array], where: str = "") -> None:
    """Check that no column of a key has a null.

    Raises:
        FatalError: one has; `where` stands before the reason.
    """
    for name, column in zip(names, columns, strict=True):
        if column.null_count:
            raise FatalError(f"{where}{describe_null_key(name)}")
