"""Fetched records -> columns of one topic-partition, with the headers that the sink reads."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
import numpy as np
import pyarrow as pa

from connector.kafka.consumer.fetcher import FetchedRecords
from connector.kafka.consumer.record_headers import read_headers
from serde.arrays import Ints


@attrs.frozen(eq=False)
class ConsumerRecords:
    """Consecutive records of one topic-partition: `key` and `value` as bytes, `offset` ascending.

    `old_key` and `new_key` are the headers of these names (`sink.convert.key_change_headers`), where they were
    asked for, and `broken` the places of records whose headers cannot be read then.
    """

    topic: str
    partition: int
    offset: Ints
    key: pa.Array
    value: pa.Array
    old_key: pa.Array | None = None
    new_key: pa.Array | None = None
    broken: Ints = attrs.field(factory=lambda: np.zeros(0, np.int64))

    @property
    def at(self) -> tuple[str, int]:
        """The topic-partition."""
        return self.topic, self.partition

    def only(self, places: Ints) -> ConsumerRecords:
        """Return some of the records, by their places, ascending."""
        rows = pa.array(places)
        old, new = (None if keys is None else keys.take(rows) for keys in (self.old_key, self.new_key))
        return attrs.evolve(
            self,
            offset=self.offset[places],
            key=self.key.take(rows),
            value=self.value.take(rows),
            old_key=old,
            new_key=new,
            broken=np.flatnonzero(np.isin(places, self.broken)),
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values."""
        return int(self.key.nbytes + self.value.nbytes)

    @classmethod
    def of(cls, chunk: FetchedRecords, old_key: str | None = None, new_key: str | None = None) -> ConsumerRecords:
        """Take what was fetched, and the headers of these names if there are any."""
        found = chunk.records
        run = cls(chunk.topic, chunk.partition, found.offset, found.key, found.value)
        if old_key is None and new_key is None:
            return run
        told = read_headers(found, [name for name in (old_key, new_key) if name is not None])
        old = None if old_key is None else told.columns[0]
        new = None if new_key is None else told.columns[-1]
        return attrs.evolve(run, old_key=old, new_key=new, broken=np.flatnonzero(told.broken))

    @classmethod
    def of_records(
        cls, at: tuple[str, int], records: Iterable[tuple[int, bytes | None, bytes | None]]
    ) -> ConsumerRecords:
        """Take a few records, each as (offset, key, value)."""
        offsets, keys, values = zip(*records, strict=True)
        key, value = (pa.array(column, pa.binary()) for column in (keys, values))
        return cls(*at, np.array(offsets, np.int64), key, value)
