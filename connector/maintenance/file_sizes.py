"""Paths of files that are passed by -> how many bytes they have together. On the driver."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import structlog

from connector.errors import ConnectorError
from connector.iceberg.catalog.file_io import file_io_for, map_read_errors

_READERS, _PORTION = 16, 1000


@attrs.define(eq=False)
class FileSizes:
    """Java's `Consumer` that leaves files where they are and adds up their sizes, some at once.

    Where the store does not answer the sizes are not known, which is no reason to stop.
    """

    io_properties: Mapping[str, str]
    table: str
    _waiting: list[str] = attrs.field(factory=list)
    _bytes: int = 0
    _is_known: bool = True

    def accept(self, path: Any) -> None:
        """Note a file."""
        self._waiting.append(str(path))
        if len(self._waiting) >= _PORTION:
            self._measure()

    def total(self) -> int | None:
        """Return the bytes of all files; None where the store did not tell."""
        self._measure()
        return self._bytes if self._is_known else None

    def _measure(self) -> None:
        paths, self._waiting = self._waiting, []
        if not paths or not self._is_known:
            return
        try:
            with map_read_errors(f"measuring files of table {self.table}"), ThreadPoolExecutor(_READERS) as pool:
                self._bytes += sum(pool.map(self._size_of, paths))
        except ConnectorError as error:
            self._is_known = False
            structlog.get_logger().warning("sizes of files are not known", table=self.table, reason=str(error))

    def _size_of(self, path: str) -> int:
        try:
            return len(file_io_for(self.io_properties, path).new_input(path))
        except FileNotFoundError:
            return 0

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("java.util.function.Consumer",)
