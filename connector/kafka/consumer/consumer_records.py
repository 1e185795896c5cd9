"""Columns of fetched records -> the records of one topic-partition, as all steps of the sink take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from connector.errors import FatalError
from connector.kafka.consumer.records.record_columns import RecordColumns
from connector.kafka.consumer.records.record_headers import read_first_header, read_headers
from connector.kafka.consumer.records.unreadable_records import BATCH_REMEDY, UnreadableBatch
from serde.arrays import Ints
from serde.events.kinds.header_names import CONNECTOR_HEADER

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Headers of a record, in its order; a name may come again."""


@attrs.frozen(eq=False)
class ConsumerRecords:
    """Consecutive records of one topic-partition: `key` and `value` as bytes, `offset` ascending.

    `old_key` and `new_key` are the headers of these names (`serde.events.kinds.header_names`), where `with_headers` has
    read them, and `broken` the places of records whose headers cannot be read then. `fetched` has the bytes of all
    headers, None for records that were not fetched. `connector` is what Debezium's header says of the first record,
    "mysql" for example: the records of one fetch are of one connector but where another has taken over a topic.
    `headers` are others by name, where `with_named_headers` has read them, or all where the records were not fetched.
    `unreadable` says that these, no records, stand for a record batch that cannot be read.
    """

    topic: str
    partition: int
    offset: Ints
    key: pa.Array
    value: pa.Array
    old_key: pa.Array | None = None
    new_key: pa.Array | None = None
    broken: Ints = attrs.field(factory=lambda: np.zeros(0, np.int64))
    fetched: RecordColumns | None = None
    connector: str | None = None
    headers: Mapping[str, pa.Array] = attrs.field(factory=dict)
    unreadable: UnreadableBatch | None = None

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
            fetched=None,
            headers={name: values.take(rows) for name, values in self.headers.items()},
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of keys and values."""
        return int(self.key.nbytes + self.value.nbytes)

    @classmethod
    def of_fetched(cls, topic: str, partition: int, fetched: RecordColumns) -> ConsumerRecords:
        """Take the columns of one fetch as they are."""
        name = read_first_header(fetched, CONNECTOR_HEADER)
        connector = None if name is None else name.decode(errors="replace")
        return cls(topic, partition, fetched.offset, fetched.key, fetched.value, fetched=fetched, connector=connector)

    @classmethod
    def of_unreadable(cls, topic: str, partition: int, batch: UnreadableBatch) -> ConsumerRecords:
        """Stand for a record batch that cannot be read."""
        none = pa.array([], pa.binary())
        return cls(topic, partition, np.zeros(0, np.int64), none, none, unreadable=batch)

    def check_readable(self) -> ConsumerRecords:
        """Return these records, for who cannot do without any. FatalError where they stand for an unreadable batch."""
        if self.unreadable is not None:
            place = f"{self.topic}-{self.partition} offsets {self.unreadable.first} to {self.unreadable.last}"
            raise FatalError(f"{place} cannot be read: {self.unreadable.reason}; {BATCH_REMEDY}")
        return self

    def with_headers(self, old_key: str | None, new_key: str | None) -> ConsumerRecords:
        """Read the headers of these names; None for one that is not asked for."""
        names = [name for name in (old_key, new_key) if name is not None]
        if not names:
            return self
        if self.fetched is None:
            old, new = self.headers.get(old_key or ""), self.headers.get(new_key or "")
            return attrs.evolve(self, old_key=old, new_key=new)
        headers = read_headers(self.fetched, names)
        return attrs.evolve(
            self,
            old_key=None if old_key is None else headers.columns[0],
            new_key=None if new_key is None else headers.columns[-1],
            broken=np.flatnonzero(headers.broken),
        )

    def with_named_headers(self, names: Sequence[str]) -> ConsumerRecords:
        """Read headers that are there into `headers`; of records that were not fetched they are known already."""
        if self.fetched is None:
            return self
        found = read_headers(self.fetched, names)
        there = zip(names, found.columns, strict=True)
        columns = {name: column for name, column in there if column.null_count < len(column)}
        return attrs.evolve(self, headers=columns, broken=np.union1d(self.broken, np.flatnonzero(found.broken)))

    @classmethod
    def of_records(
        cls,
        at: tuple[str, int],
        records: Iterable[tuple[int, bytes | None, bytes | None]],
        headers: Sequence[Headers] = (),
    ) -> ConsumerRecords:
        """Take a few records, each as (offset, key, value), and their headers, where these are known."""
        offsets, keys, values = zip(*records, strict=True)
        key, value = (pa.array(column, pa.binary()) for column in (keys, values))
        # Of headers of one name the first counts, as where they are fetched.
        first = [dict(reversed(list(own))) for own in headers]
        named = {name: pa.array([own.get(name) for own in first], pa.binary()) for own in first for name in own}
        told = first[0].get(CONNECTOR_HEADER) if first else None
        connector = None if told is None else told.decode(errors="replace")
        return cls(*at, np.array(offsets, np.int64), key, value, connector=connector, headers=named)
