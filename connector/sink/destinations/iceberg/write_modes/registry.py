"""Names of write modes -> the modes. A mode's module has its name: `equality-delete` is in equality_delete.py.

A new mode is one line in `settings.iceberg.write_mode.DECLARED_MODES`, from which the options and their documentation
derive, and one module here with its MODE. `tests/unit/test_sink_write_modes.py` has the suite that every mode passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

import pyarrow as pa

from connector.iceberg.types.nested_columns import read_columns
from connector.iceberg.write.table_writer import TableWriter
from connector.settings.iceberg.write_mode import DECLARED_MODES
from connector.sink.destinations.iceberg.write_modes.base import WriteMode
from connector.sink.model.plan import TablePlan
from connector.sink.model.task_output import TaskOutput


def _import_mode(name: str) -> WriteMode:
    mode: WriteMode = import_module(f"{__package__}.{name.replace('-', '_')}").MODE
    return mode


WRITE_MODES: Mapping[str, WriteMode] = {name: _import_mode(name) for name in DECLARED_MODES}


def remove_rows(writer: TableWriter, rows: pa.RecordBatch, table: TablePlan) -> Iterator[TaskOutput]:
    """Let the table's write mode remove the rows that the table may hold under the keys of these rows."""
    return WRITE_MODES[table.write_mode].remove_rows(writer, read_columns(rows, table.layout.keys), table)
