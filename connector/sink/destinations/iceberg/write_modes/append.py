"""Rows of events -> data files, in write mode append: no row is ever replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.write_modes.base import WriteMode
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import KeyLookup
from connector.sink.model.task_output import TaskOutput


class Append:
    """Needs no key, and nothing of the table."""

    min_format_version = 1
    looks_up_rows = False
    writes_equality_deletes = False

    def find_key_fault(self, columns: pa.Schema, keys: Sequence[str]) -> str | None:  # noqa: ARG002
        """Return None: rows have no key."""
        return None

    def remove_rows(self, writer: TableWriter, keys: Sequence[pa.Array], table: TablePlan) -> Iterator[TaskOutput]:  # noqa: ARG002
        """Write nothing."""
        yield from ()

    def find_rows(
        self,
        spark: SparkSession,  # noqa: ARG002
        table: Table,  # noqa: ARG002
        plan: TablePlan,  # noqa: ARG002
        lookup: KeyLookup,  # noqa: ARG002
    ) -> tuple[RowsToReplace | None, list[FileDescription]]:
        """Find nothing."""
        return None, []

    def apply(self, update: Any, rows: RowsToReplace) -> None:
        """Do nothing: files are appended."""


MODE: WriteMode = Append()
