"""Files of tasks -> a store in memory, which travels with plans as a number; and as any reader of the product finds it.

Data files are kept as they are handed over; one that a task reads is Parquet, made of it then.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import lru_cache

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.schema import Schema
from pyiceberg.typedef import EMPTY_DICT, Properties
from pyiceberg.types import PrimitiveType

from connector.errors import RetriableError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.arrow_types import to_arrow_schema
from connector.iceberg.write.partitioning import Partition
from connector.iceberg.write.rolling_file import FileKind
from tests.simulation.catalog_server import CatalogServer
from tests.simulation.interruptions import Interruptions

STORES: dict[int, tuple[CatalogServer, Interruptions]] = {}
"""What tasks write to, by a number that travels with them."""

_NUMBER = "simulated-store"


def io_properties(store: int) -> dict[str, str]:
    """The properties by which PyIceberg opens a store in memory."""
    return {"py-io-impl": f"{__name__}.MemoryIO", _NUMBER: str(store)}


def store_away() -> Exception:
    return RetriableError("the store does not answer")


@attrs.frozen
class MemoryFiles:
    """Opens files in a store in memory."""

    store: int

    def __call__(self, layout: TableLayout, kind: FileKind, partition: Partition, label: str) -> MemoryFile:
        return MemoryFile(self.store, layout, kind)


@attrs.define(eq=False)
class MemoryFile:
    """A file that is written to memory when it is closed."""

    store: int
    layout: TableLayout
    kind: FileKind
    waiting: list[pa.RecordBatch] = attrs.field(factory=list)
    waiting_bytes: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.waiting.append(batch)

    def flush(self) -> None:
        pass

    def close(self) -> Iterator[FileDescription]:
        """Write the file, and describe it; nothing where nothing came."""
        rows, self.waiting = sum(batch.num_rows for batch in self.waiting), self.waiting
        if not rows:
            return
        server, calls = STORES[self.store]
        table = pa.Table.from_batches(self.waiting)
        path = f"{self.layout.name}/data/{self.kind.content}-{server.next_id()}"

        def put() -> None:
            server.files[path] = table

        calls.call(f"write {self.kind.content} of {self.layout.name}", put, store_away)
        lower, upper = _bounds(table, self.layout) if self.kind.content == "data" else ({}, {})
        yield FileDescription(path, self.kind.content, b"", None, 1, lower, upper)


def _bounds(table: pa.Table, layout: TableLayout) -> tuple[dict[int, bytes], dict[int, bytes]]:
    lower, upper = {}, {}
    for field_id, name, kind in _key_fields(layout.schema_json, layout.keys):
        column = table[name].combine_chunks()
        # UUIDs are compared by their bytes.
        plain = column.storage if isinstance(column, pa.ExtensionArray) else column
        low, high = pa.compute.min_max(plain).as_py().values()
        if low is not None:
            lower[field_id], upper[field_id] = to_bytes(kind, low), to_bytes(kind, high)
    return lower, upper


@lru_cache(maxsize=64)
def _key_fields(schema_json: str, keys: tuple[str, ...]) -> list[tuple[int, str, PrimitiveType]]:
    schema = Schema.model_validate_json(schema_json)
    return [(f.field_id, f.name, f.field_type) for f in schema.fields if f.name in keys]  # type: ignore[misc]


class MemoryIO(FileIO):
    """PyIceberg's door to a store in memory."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._store = int(properties[_NUMBER])

    def new_input(self, location: str) -> InputFile:
        return _MemoryInput(self._store, location)

    def new_output(self, location: str) -> OutputFile:
        return _MemoryOutput(self._store, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError


class _MemoryInput(InputFile):
    def __init__(self, store: int, location: str) -> None:
        super().__init__(location)
        self._store = store

    def __len__(self) -> int:
        return len(self.open().getvalue())

    def exists(self) -> bool:
        return self._location in STORES[self._store][0].files

    def open(self, seekable: bool = True) -> io.BytesIO:  # type: ignore[override]
        server, calls = STORES[self._store]
        return io.BytesIO(calls.call(f"read {self._location}", lambda: _read_bytes(server, self._location), store_away))


def _read_bytes(server: CatalogServer, path: str) -> bytes:
    if path not in server.files:
        raise FileNotFoundError(path)
    found = server.files[path]
    if isinstance(found, bytes):
        return found
    if not isinstance(found, pa.Table):
        found = pa.Table.from_pylist(found, to_arrow_schema(server.tables[path.partition("/")[0]].schema))
    return to_parquet(found)


def to_parquet(table: pa.Table) -> bytes:
    """A Parquet file of some rows."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none")
    return sink.getvalue()


class _MemoryOutput(OutputFile):
    def __init__(self, store: int, location: str) -> None:
        super().__init__(location)
        self._store = store

    def __len__(self) -> int:
        return len(STORES[self._store][0].files[self._location])

    def exists(self) -> bool:
        return self._location in STORES[self._store][0].files

    def to_input_file(self) -> InputFile:
        return _MemoryInput(self._store, self._location)

    def create(self, overwrite: bool = False) -> _MemoryStream:  # type: ignore[override]
        return _MemoryStream(self._store, self._location)


class _MemoryStream(io.BytesIO):
    """A file that is there once it is closed."""

    def __init__(self, store: int, location: str) -> None:
        super().__init__()
        self._store, self._location = store, location

    def close(self) -> None:
        if self.closed:
            return
        server, calls = STORES[self._store]
        content = self.getvalue()
        super().close()

        def put() -> None:
            server.files[self._location] = content

        calls.call(f"write {self._location}", put, store_away)


__all__ = ["STORES", "MemoryFiles", "MemoryIO", "io_properties", "store_away", "to_parquet"]
