"""Old keys of a batch -> a filter of fixed size, by which executors skip the rows of other keys.

A table's rows are wide, and few rows of a batch belong to keys that changed. Only this filter passes through the
driver. It may let rows of other keys through (a Bloom filter with one hash), but never drops a row of these keys.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import attrs
import numpy as np
import pyarrow as pa
from pyiceberg.types import IcebergType
from pyspark.sql import DataFrame

from connector.sink.job.shuffle import hash_rows, unpack
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan
from serde.arrays import Mask

_BITS = 1 << 23


@attrs.frozen(eq=False)
class KeyFilter:
    """`bits` has one for every number that a key may have; packed, and compressed: a megabyte at most."""

    keys: Sequence[tuple[str, IcebergType]]
    bits: bytes

    @staticmethod
    def of(parts: Iterable[ChangeBatch], table: TablePlan) -> KeyFilter:
        """Build the filter from all keys of some changes."""
        keys = [(name, table.layout.schema.find_type(name)) for name in table.layout.keys]
        marks = np.zeros(_BITS, np.bool_)
        for part in parts:
            marks[hash_rows(part.rows, keys) % _BITS] = True
        return KeyFilter(keys, zlib.compress(np.packbits(marks).tobytes(), 1))

    @staticmethod
    def join(bits: Iterable[bytes], table: TablePlan) -> KeyFilter:
        """Return the filter that lets through what any does, of the `bits` of each."""
        every = np.zeros(_BITS // 8, np.uint8)
        for one in bits:
            every |= np.frombuffer(zlib.decompress(one), np.uint8)
        return attrs.evolve(KeyFilter.of((), table), bits=zlib.compress(every.tobytes(), 1))

    def select(self, part: ChangeBatch) -> ChangeBatch:
        """Return the changes of keys that it lets through."""
        chosen = np.flatnonzero(self._marks[hash_rows(part.rows, self.keys) % _BITS])
        return part if len(chosen) == len(part) else part.take(chosen)

    @cached_property
    def _marks(self) -> Mask:
        marks: Mask = np.unpackbits(np.frombuffer(zlib.decompress(self.bits), np.uint8)).view(np.bool_)
        return marks


def collect_key_filter(changes: DataFrame, table: TablePlan) -> KeyFilter:
    """Return the filter of the keys in outputs that hold changes of the table. Cost: a job over them."""
    layout = table.layout.rows

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        payloads = (payload for batch in batches for payload in batch.column(0))
        bits = KeyFilter.of((unpack(payload.as_buffer(), layout) for payload in payloads), table).bits
        yield pa.RecordBatch.from_arrays([pa.array([bits], pa.binary())], ["bits"])

    filters = changes.select("payload").mapInArrow(task, "bits binary").collect()
    return KeyFilter.join((bytes(row.bits) for row in filters), table)
