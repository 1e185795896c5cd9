"""The rows that tasks of a batch hand on: to the reducers through the shuffle, and to the driver at the end.

`FILE`, `SCHEMA_CHANGE`, `TRUNCATES`, `UNAVAILABLE_SEEN`, `DEAD_LETTERS`, `METRICS`, `KEY_RANGES`, `VERSION_RANGES`,
`LATE_RANGES`, `PROGRESS` and `DELETED_KEYS` are small and
bounded: file descriptions, shapes, references of dead letters, counts, where keys lie. All other kinds stay on
executors.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

KEY_CHANGES = "elsewhere"
CHANGES, TOMBSTONES, UNAVAILABLE_ROWS, OLD_KEY_ROWS, LAST_ROWS, UNAVAILABLE_SEEN = (
    "changes",
    "recall",
    "patch",
    "moved",
    "last",
    "open",
)
LATE_CANDIDATES, LATE_RANGES, PROGRESS, DELETED_KEYS = "suspect", "aside", "seen", "deleted"
KEYS, KEY_RANGES = "keys", "ranges"
NEW_VERSIONS, VERSION_KEYS, TABLE_VERSIONS, VERSION_RANGES = "versions", "lookup", "held", "spans"
FILE, SCHEMA_CHANGE, TRUNCATES, DEAD_LETTERS, METRICS = "file", "need", "truncates", "letter", "tally"

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark's `mapInArrow` runs."""

_ARROW_SCHEMA = pa.schema(
    [("kind", pa.string()), ("table", pa.int32()), ("bucket", pa.int32()), ("payload", pa.binary())]
)
OUTPUT_SCHEMA = from_arrow_schema(_ARROW_SCHEMA)


@attrs.frozen(eq=False)
class TaskOutput:
    """One row between tasks; `table` is the index in the plan, -1 where none is meant."""

    kind: str
    payload: bytes
    table: int = -1
    bucket: int = 0

    @staticmethod
    def of(kind: str, value: Any, table: int = -1) -> TaskOutput:
        """Wrap a small value of ours."""
        return TaskOutput(kind, pickle.dumps(value), table)

    @staticmethod
    def of_keys(keys: pa.RecordBatch, table: int) -> TaskOutput:
        """Wrap key columns, as Spark can carry them, as one Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, keys.schema) as writer:
            writer.write_batch(keys)
        return TaskOutput(KEYS, sink.getvalue().to_pybytes(), table)


def unpack_keys(payload: pa.Buffer) -> pa.RecordBatch:
    """Unwrap key columns."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def unpack_value(payload: bytes) -> Any:
    """Unwrap a value of ours."""
    return pickle.loads(bytes(payload))  # noqa: S301 - made by our own tasks


BATCH_BYTES, BATCH_ROWS = 1024**2, 256
"""How much goes into one record batch: each costs both sides, and many parcels are small."""


def to_batches(parcels: Iterable[TaskOutput]) -> Iterator[pa.RecordBatch]:
    """Return parcels as record batches of `OUTPUT_SCHEMA`."""
    waiting: list[TaskOutput] = []
    size = 0
    for parcel in parcels:
        waiting.append(parcel)
        size += len(parcel.payload)
        if size >= BATCH_BYTES or len(waiting) >= BATCH_ROWS:
            yield to_batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield to_batch(waiting)


def to_batch(parcels: Iterable[TaskOutput]) -> pa.RecordBatch:
    """Return parcels as one record batch of `OUTPUT_SCHEMA`."""
    rows = list(parcels)
    columns = [[p.kind for p in rows], [p.table for p in rows], [p.bucket for p in rows], [p.payload for p in rows]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)


def read_rows(record_batch: pa.RecordBatch) -> Iterator[tuple[str, int, int, pa.Buffer]]:
    """Give (kind, table, bucket, payload without a copy) of each row."""
    kinds, tables, buckets, payloads = record_batch.columns
    for i in range(record_batch.num_rows):
        yield kinds[i].as_py(), tables[i].as_py(), buckets[i].as_py(), payloads[i].as_buffer()
