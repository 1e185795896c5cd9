"""The rows that tasks of a batch hand on: to the reducers through the shuffle, and to the driver at the end.

`CHANGES`, `RECALL`, `PATCH`, `MOVED` and `LAST` stay on executors; every other kind is small and bounded: file
descriptions, shapes, references of dead letters, counts.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import pyarrow as pa

CHANGES, RECALL, PATCH, MOVED, LAST, OPEN = "changes", "recall", "patch", "moved", "last", "open"
FILE, NEED, TRUNCATES, LETTER, TALLY = "file", "need", "truncates", "letter", "tally"

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark's `mapInArrow` runs."""

SCHEMA = "kind string, table int, bucket int, payload binary"
_ARROW = pa.schema([("kind", pa.string()), ("table", pa.int32()), ("bucket", pa.int32()), ("payload", pa.binary())])


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
