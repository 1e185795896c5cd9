"""Write mode equality-delete: keys of changes -> equality delete files; the table is not read.

Only keys that the table provably does not hold need no delete: those outside the bounds of its key columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.write_modes.base import WriteMode
from connector.sink.destinations.iceberg.write_modes.key_types import find_composite_keys, find_nested_keys
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import KeyLookup
from connector.sink.model.task_output import TaskOutput
from serde.arrays import Ints, Mask


class EqualityDelete:
    """Deletes by key: cheap to write, joined by readers until a compaction."""

    min_format_version = 2
    looks_up_rows = False
    writes_equality_deletes = True

    def find_key_fault(self, columns: pa.Schema, keys: Sequence[str]) -> str | None:
        """Say why equality deletes by this key do not hit all rows.

        Seen with Iceberg 1.12 (docs/decisions/0023, 0025): a reader that projects no field of a struct, `count(*)`
        among them, fails on an equality delete by it, or would take it for null; deletes by bytes of fixed length hit
        nothing; numbers with a floating point are none that Iceberg's spec has equality deletes by.
        """
        fault = find_composite_keys(columns, keys)
        if fault is not None:
            return fault
        unfit = [name for name in keys if name in columns.names and not _allows_equality_delete(columns, name)]
        if unfit:
            return (
                f"its key has a column of a type by which equality deletes do not hit all rows ({', '.join(unfit)}: "
                "fixed, float or double): set its write-mode to position-delete or copy-on-write, or name others in "
                "iceberg.tables.default-id-columns"
            )
        nested = find_nested_keys(columns, keys)
        if not nested:
            return None
        return (
            f"its key has fields within structs ({', '.join(nested)}), and queries that leave those out fail on "
            "equality deletes by them: set its write-mode to position-delete or copy-on-write, or name columns of the "
            "top level in iceberg.tables.default-id-columns"
        )

    def remove_rows(self, writer: TableWriter, keys: Sequence[pa.Array], table: TablePlan) -> Iterator[TaskOutput]:
        """Write an equality delete for each key that the table may hold."""
        needed = may_exist(dict(zip(table.layout.keys, keys, strict=True)), table.known_keys)
        if needed.any():
            batch = pa.RecordBatch.from_arrays(list(keys), schema=pa.schema(table.layout.key_fields))
            writer.write_equality_deletes(batch if needed.all() else batch.take(_to_indices(needed)))
        yield from ()

    def find_rows(
        self,
        spark: SparkSession,  # noqa: ARG002
        table: Table,  # noqa: ARG002
        plan: TablePlan,  # noqa: ARG002
        lookup: KeyLookup,  # noqa: ARG002
    ) -> tuple[RowsToReplace | None, list[FileDescription]]:
        """Find nothing: the deletes name keys."""
        return None, []

    def apply(self, update: Any, rows: RowsToReplace) -> None:
        """Do nothing: delete files are added with the others."""


def may_exist(keys: dict[str, pa.Array], known: KeyBounds) -> Mask:
    """Mark the keys that the table may hold: inside the bounds of every identifier column, or bounds unknown."""
    length = len(next(iter(keys.values())))
    if not known.is_complete:
        return np.ones(length, np.bool_)
    inside = np.full(length, bool(known.bounds), np.bool_)
    for name, (lowest, highest) in known.bounds.items():
        column = keys[name]
        low, high = pa.scalar(lowest, column.type), pa.scalar(highest, column.type)
        inside &= np.asarray(pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)))
    return inside


def _allows_equality_delete(columns: pa.Schema, name: str) -> bool:
    kind = columns.field(name).type
    return not (pa.types.is_floating(kind) or pa.types.is_fixed_size_binary(kind))


def _to_indices(mask: Mask) -> pa.Array:
    rows: Ints = np.flatnonzero(mask)
    return pa.array(rows)


MODE: WriteMode = EqualityDelete()
