"""A load that has stopped -> the ends of Debezium's topics, and sinks that have come there.

A marker that is written last tells that Debezium has sent all that was before it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import orjson
from confluent_kafka import Consumer, KafkaException, TopicPartition

from connector.errors import FatalError
from tests.chaos.connectors import Connector, Kind
from tests.chaos.tables import MARKER, TABLES, mark
from tests.chaos.worker import PREFIX, topic
from tests.chaos.world import PARTITIONS, World
from tests.interop.lag import lag, observer

_STEP_S, _SETTLED_S, _CALL_S = 0.5, 2.0, 10.0
Ends = dict[tuple[str, int], int]


class Stalled(Exception):
    """Something did not come to the end in time."""


class QuietPoint:
    """Waits; `watch` is called meanwhile, so that what has ended is started again."""

    def __init__(self, world: World, watch: Callable[[], object], limit_s: float) -> None:
        """Wait for at most so long for each of the steps."""
        self._world, self._watch, self._limit_s = world, watch, limit_s
        self._until = math.inf

    def hurry(self, seconds: float) -> None:
        """Wait for no more than so many seconds in all from now on."""
        self._until = time.monotonic() + seconds

    def ends(self) -> Ends:
        """Wait until Debezium has sent everything; where the topics of tables end then."""
        number = self._mark()
        self._wait("Debezium", lambda: self._last_marker() == number)
        found, since = self._ends(), time.monotonic()
        while not found or time.monotonic() - since < _SETTLED_S:
            time.sleep(_STEP_S)
            if (now := self._ends()) != found:
                found, since = now, time.monotonic()
        return found

    def wait_for(self, sinks: Iterable[Connector], ends: Ends) -> None:
        """Wait until the consumer groups of sinks have come to the ends."""
        for sink in sinks:
            if sink.kind in (Kind.SOURCE, Kind.REPLICA):
                continue
            with observer(self._world.servers, f"connect-{PREFIX}-{sink.name}") as group:
                self._wait(sink.name, lambda group=group: not lag(group, ends))  # type: ignore[misc]

    def wait_until(self, who: str, condition: Callable[[], bool]) -> None:
        """Wait for something else."""
        self._wait(who, condition)

    def _wait(self, who: str, condition: Callable[[], bool]) -> None:
        since = time.monotonic()
        while not condition():
            self._watch()
            if time.monotonic() > min(since + self._limit_s, self._until):
                raise Stalled(f"{who} did not come to the end within {time.monotonic() - since:.0f} s")
            time.sleep(_STEP_S)

    def _mark(self) -> int:
        """Write a marker; its number."""
        number = int(time.time() * 1000) % 2_000_000_000

        def write() -> bool:
            try:
                self._world.postgres.run(mark(number))
            except FatalError:
                return False
            return True

        self._wait("PostgreSQL", write)
        return number

    def _last_marker(self) -> int | None:
        """The number of the marker that Debezium has sent last; None where there is none yet, or no broker."""
        place = topic(MARKER), 0
        end = self._offsets([place]).get(place, 0)
        if not end:
            return None
        with _client(self._world.servers) as client:
            client.assign([TopicPartition(*place, end - 1)])
            found = client.poll(_CALL_S)
        value = None if found is None or found.error() is not None else found.value()
        return None if value is None else int(orjson.loads(value)["payload"]["after"]["n"])

    def _ends(self) -> Ends:
        return self._offsets([(topic(table.name), number) for table in TABLES for number in range(PARTITIONS)])

    def _offsets(self, places: list[tuple[str, int]]) -> Ends:
        """Where partitions end; nothing where a broker does not answer."""
        with _client(self._world.servers) as client:
            try:
                return {
                    place: client.get_watermark_offsets(TopicPartition(*place), timeout=_CALL_S)[1] for place in places
                }
            except KafkaException:
                return {}


@contextmanager
def _client(bootstrap_servers: str) -> Iterator[Consumer]:
    client = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "quiet", "enable.auto.commit": False})
    try:
        yield client
    finally:
        client.close()
