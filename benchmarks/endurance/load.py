"""clock -> topic: envelopes at a steady rate, when each was produced, and the rows that they leave."""

from __future__ import annotations

import threading
import time
from array import array

import attrs
import numpy as np
import pyarrow as pa

from benchmarks.generate import Events, upsert_events
from benchmarks.messages import envelopes
from benchmarks.topics import PARTITIONS, producer

_TICK_S, _CHUNK = 0.05, 20_000
BURST_EVERY_S, BURST_S = 300.0, 10.0


@attrs.frozen
class Pace:
    """Events a second, and how many times as many in a burst: the first ten seconds of every five minutes."""

    rate: int
    burst: float = 1.0

    def events_until(self, seconds: float) -> int:
        """How many events are due so many seconds after the start."""
        whole, rest = divmod(max(0.0, seconds), BURST_EVERY_S)
        in_bursts = whole * BURST_S + min(rest, BURST_S)
        return int(self.rate * (seconds + in_bursts * (self.burst - 1)))


class SteadyLoad(threading.Thread):
    """Produces until it is told to finish; a key is always in the same partition.

    `produced` has, per partition, the time (seconds since 1970) of each offset. `stamps` and `alive` have, per key, the
    `updated_at` of its last event, 0 before the first, and whether that left a row.
    """

    def __init__(self, bootstrap: str, topic: str, pace: Pace, keys: int, seed: int = 7) -> None:
        """Describe the load; nothing runs yet."""
        super().__init__(name="steady-load", daemon=True)
        self._client, self._topic, self._pace, self._keys, self._seed = producer(bootstrap, 5), topic, pace, keys, seed
        self._done = threading.Event()
        self._chunk: Events | None = None
        self.sent = 0
        self.fault: Exception | None = None
        self.produced = tuple(array("d") for _ in range(PARTITIONS))
        self.stamps, self.alive = np.zeros(keys, np.int64), np.zeros(keys, np.bool_)

    def run(self) -> None:
        """Produce what is due, twenty times a second."""
        begun = time.monotonic()
        try:
            while not self._done.wait(_TICK_S):
                self._produce(self._pace.events_until(time.monotonic() - begun) - self.sent)
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self.fault = error

    def finish(self) -> None:
        """Stop producing; returns when everything is acknowledged."""
        self._done.set()
        self.join()
        self._client.flush()
        del self._client  # else it goes on looking for the broker
        if self.fault is not None:
            raise self.fault

    def _produce(self, count: int) -> None:
        while count > 0:
            part = self._take(count)
            count -= len(part)
            for chunk in envelopes(part):
                for (key, value), number in zip(chunk, part.ids.tolist(), strict=True):
                    while len(self._client) > 100_000:
                        self._client.poll(0.05)
                    self._client.produce(self._topic, value, key, number % PARTITIONS)
                    self.produced[number % PARTITIONS].append(time.time())
            self._client.poll(0)

    def _take(self, count: int) -> Events:
        """The next events, as of now, at most so many and as many as are left of a chunk."""
        place = self.sent % _CHUNK
        if place == 0:
            self._chunk = upsert_events(_CHUNK, self._keys, 1, "endurance", self._seed + self.sent // _CHUNK)
        assert self._chunk is not None
        part = attrs.evolve(self._chunk.part(place, min(count, _CHUNK - place)), first=self.sent)
        part = _dated(part, time.time_ns() + np.arange(len(part)))
        self.sent += len(part)
        # Of several events of a key the last one stays, also where numpy assigns many at once.
        self.stamps[part.ids] = part.rows["updated_at"].to_numpy()
        self.alive[part.ids] = np.asarray(part.rows["__op"].to_pylist()) != "d"
        return part


def _dated(events: Events, now_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Events:
    """The same events as if the source had committed them now; `updated_at` tells them apart."""
    rows = events.rows
    columns = {
        "__source_ts_ns": now_ns,
        "__ts_ms": now_ns // 1_000_000,
        "updated_at": events.first + np.arange(len(events)) + 1,
    }
    for name, values in columns.items():
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(values))
    return attrs.evolve(events, rows=rows)
