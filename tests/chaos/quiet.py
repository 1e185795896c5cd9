"""A load that has stopped -> the ends of Debezium's topics, and sinks that have come there.

A marker that is written last tells that Debezium has sent all that was before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from connector.errors import FatalError
from tests.chaos.connectors import Connector, Kind
from tests.chaos.tables import MARKER, TABLES
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
        self._markers = 0

    def ends(self) -> Ends:
        """Wait until Debezium has sent everything; where the topics of tables end then."""
        before = self._count(topic(MARKER))
        self._mark()
        self._wait("Debezium", lambda: self._count(topic(MARKER)) > before)
        found, since = self._ends(), time.monotonic()
        while time.monotonic() - since < _SETTLED_S:
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
        limit = time.monotonic() + self._limit_s
        while not condition():
            self._watch()
            if time.monotonic() > limit:
                raise Stalled(f"{who} did not come to the end within {self._limit_s:.0f} s")
            time.sleep(_STEP_S)

    def _mark(self) -> None:
        self._markers += 1
        limit = time.monotonic() + self._limit_s
        while True:
            try:
                number = f"{int(time.time() * 1000) % 2_000_000_000}"
                self._world.postgres.run(
                    f"INSERT INTO {MARKER} (id, n) VALUES (1, {number}) ON CONFLICT (id) DO UPDATE SET n = excluded.n"
                )
            except FatalError:
                if time.monotonic() > limit:
                    raise
                time.sleep(_STEP_S)
            else:
                return

    def _count(self, name: str) -> int:
        found = self._offsets([(name, 0)])
        return found.get((name, 0), 0)

    def _ends(self) -> Ends:
        return self._offsets([(topic(table.name), number) for table in TABLES for number in range(PARTITIONS)])

    def _offsets(self, places: list[tuple[str, int]]) -> Ends:
        asked = Consumer({"bootstrap.servers": self._world.servers, "group.id": "quiet", "enable.auto.commit": False})
        try:
            return {place: asked.get_watermark_offsets(TopicPartition(*place), timeout=_CALL_S)[1] for place in places}
        except KafkaException:
            return {}
        finally:
            asked.close()
