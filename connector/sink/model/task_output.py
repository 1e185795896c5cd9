"""The rows that tasks of a batch hand on: to the reducers through the shuffle, and to the driver at the end.

`FILE`, `NEED`, `TRUNCATES`, `OPEN`, `LETTER`, `TALLY`, `RANGES`, `SPANS`, `ASIDE`, `SEEN` and `DELETED` are small and
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

ELSEWHERE = "elsewhere"
CHANGES, RECALL, PATCH, MOVED, LAST, OPEN = "changes", "recall", "patch", "moved", "last", "open"
SUSPECT, ASIDE, SEEN, DELETED = "suspect", "aside", "seen", "deleted"
KEYS, RANGES = "keys", "ranges"
VERSIONS, LOOKUP, HELD, SPANS = "versions", "lookup", "held", "spans"
FILE, NEED, TRUNCATES, LETTER, TALLY = "file", "need", "truncates", "letter", "tally"

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark's `mapInArrow` runs."""

_ARROW = pa.schema([("kind", pa.string()), ("table", pa.int32()), ("bucket", pa.int32()), ("payload", pa.binary())])
SCHEMA = from_arrow_schema(_ARROW)


@attrs.frozen(eq=False)
class Parcel:
    """One row between tasks; `table` is the index in the plan, -1 where none is meant."""

    kind: str
    payload: bytes
    table: int = -1
    bucket: int = 0

    @staticmethod
    def of(kind: str, value: Any, table: int = -1) -> Parcel:
        """Wrap a small value of ours."""
        return Parcel(kind, pickle.dumps(value), table)

    @staticmethod
    def of_keys(keys: pa.RecordBatch, table: int) -> Parcel:
        """Wrap key columns, as Spark can carry them, as one Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, keys.schema) as writer:
            writer.write_batch(keys)
        return Parcel(KEYS, sink.getvalue().to_pybytes(), table)


def keys(payload: pa.Buffer) -> pa.RecordBatch:
    """Unwrap key columns."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def value(payload: bytes) -> Any:
    """Unwrap a value of ours."""
    return pickle.loads(bytes(payload))  # noqa: S301 - made by our own tasks


SENT_BYTES, SENT_ROWS = 1024**2, 256
"""How much goes into one record batch: each costs both sides, and many parcels are small."""


def sent(parcels: Iterable[Parcel]) -> Iterator[pa.RecordBatch]:
    """Give parcels as record batches of `SCHEMA`."""
    waiting: list[Parcel] = []
    size = 0
    for parcel in parcels:
        waiting.append(parcel)
        size += len(parcel.payload)
        if size >= SENT_BYTES or len(waiting) >= SENT_ROWS:
            yield batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield batch(waiting)


def batch(parcels: Iterable[Parcel]) -> pa.RecordBatch:
    """Give parcels as one record batch of `SCHEMA`."""
    rows = list(parcels)
    columns = [[p.kind for p in rows], [p.table for p in rows], [p.bucket for p in rows], [p.payload for p in rows]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def rows(record_batch: pa.RecordBatch) -> Iterator[tuple[str, int, int, pa.Buffer]]:
    """Give (kind, table, bucket, payload without a copy) of each row."""
    kinds, tables, buckets, payloads = record_batch.columns
    for i in range(record_batch.num_rows):
        yield kinds[i].as_py(), tables[i].as_py(), buckets[i].as_py(), payloads[i].as_buffer()
