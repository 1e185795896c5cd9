"""Rows that an upsert replaces -> how a table loses them: the port of the write modes.

One mode per module, called MODE there and named in `settings.iceberg.write_mode.DECLARED_MODES`; see `registry`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import KeyLookup
from connector.sink.model.task_output import TaskOutput


class WriteMode(Protocol):
    """What one write mode does, in the order of a batch. Pickled to executors: it has no state.

    `min_format_version` is the first version of Iceberg's format that has what the mode writes. With `looks_up_rows`
    the keys of changes go to the driver, and their rows are looked for before the commit (`find_rows`). With
    `writes_equality_deletes` the table gets an unpartitioned spec for them, and keys that are provably not in the table
    need none.
    """

    min_format_version: int
    looks_up_rows: bool
    writes_equality_deletes: bool

    def find_key_fault(self, columns: pa.Schema, keys: Sequence[str]) -> str | None:
        """Say why rows cannot be replaced by this key; None if they can. On the driver, before the batch."""

    def remove_rows(self, writer: TableWriter, keys: Sequence[pa.Array], table: TablePlan) -> Iterator[TaskOutput]:
        """Write deletes of these keys (one array per key column), or yield what `find_rows` needs. In a task."""

    def find_rows(
        self, spark: SparkSession, table: Table, plan: TablePlan, lookup: KeyLookup
    ) -> tuple[RowsToReplace | None, list[FileDescription]]:
        """Return the rows to replace and descriptions of the files that do without them. On the driver.

        Raises:
            FatalError, RetriableError: the table's metadata cannot be read.
        """

    def apply(self, update: Any, rows: RowsToReplace) -> None:
        """Add the replacement of `rows` to Iceberg's RowDelta, and what has to be true for it. In the commit."""
