"""Rows and deleted keys -> data files and equality delete files of one table, within a task's memory. On executors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Protocol

import pyarrow as pa

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.write.partitioning import Partition, split_by_partition, void_partition
from connector.iceberg.write.rolling_file import FileKind, RollingFile

MAX_OPEN_FILES = 32
"""Partitions written at once per task: the least recently used file is finished when another partition comes."""

MAX_BUFFERED_BYTES = 96 * 1024**2
"""Arrow bytes that may wait over all partitions of a task; beyond it the fullest partition is written."""


class OutputFile(Protocol):
    """A file that is written, or one after the other where it grows too large; `waiting_bytes` is not written yet."""

    @property
    def waiting_bytes(self) -> int:
        """Arrow bytes that wait to be written."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows or keys, as the file's kind has them."""

    def flush(self) -> None:
        """Write what waits."""

    def close(self) -> Iterator[FileDescription]:
        """Finish, and describe what was written."""


OpenFile = Callable[[TableLayout, FileKind, Partition, str], OutputFile]
"""Opens a file of a table for one partition; the last argument goes into its name."""


class TableWriter:
    """Writes one table's files in one task; `close` gives their descriptions."""

    def __init__(self, layout: TableLayout, label: str, files: OpenFile = RollingFile) -> None:
        """Prepare; files are opened when rows come.

        Args:
            layout: the table.
            label: goes into file names.
            files: opens a file.
        """
        self._layout, self._label, self._files = layout, label, files
        self._open: OrderedDict[Partition, OutputFile] = OrderedDict()
        self._deletes: OutputFile | None = None
        self._done: list[FileDescription] = []

    def write_rows(self, batch: pa.RecordBatch) -> None:
        """Write rows; the columns are the layout's, all of them, in order. Of none there is no file."""
        if not batch.num_rows:
            return
        for partition, part in split_by_partition(batch, self._layout.spec, self._layout.schema):
            self._file(partition).write(part)
        while sum(file.waiting_bytes for file in self._open.values()) > MAX_BUFFERED_BYTES:
            max(self._open.values(), key=lambda file: file.waiting_bytes).flush()

    def write_equality_deletes(self, keys: pa.RecordBatch) -> None:
        """Write keys whose rows, in whatever partition, are gone once this is committed."""
        if not keys.num_rows:
            return
        if self._deletes is None:
            kind = FileKind.equality_deletes(self._layout)
            everywhere = void_partition(self._layout.delete_spec_fields)
            self._deletes = self._files(self._layout, kind, everywhere, self._label)
        self._deletes.write(keys)

    def close(self) -> Iterator[FileDescription]:
        """Finish every file and give the descriptions."""
        for file in self._open.values():
            yield from file.close()
        if self._deletes is not None:
            yield from self._deletes.close()
        yield from self._done

    def _file(self, partition: Partition) -> OutputFile:
        file = self._open.pop(partition, None)
        if file is None:
            file = self._files(self._layout, FileKind.data(self._layout), partition, self._label)
            if len(self._open) >= MAX_OPEN_FILES:
                _, oldest = self._open.popitem(last=False)
                self._done.extend(oldest.close())
        self._open[partition] = file
        return file
