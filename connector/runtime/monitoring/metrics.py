"""What a task counted -> one value that adds up: over records, tasks and jobs, to the report of a batch."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from connector.runtime.topic_partitions import TopicPartition


@attrs.frozen
class FetchMetrics:
    """What reading Kafka took: `size_bytes` as they came over the network, packed.

    `throttle_ms` is how long quotas made us wait, `wait_ms` how long tasks waited for brokers, summed over tasks;
    `retries` are requests that failed. `readers` are the kinds of reader that were used. `epochs` tells, per
    topic-partition, the newest offset that was read and its leader epoch.
    """

    fetches: int = 0
    size_bytes: int = 0
    throttle_ms: int = 0
    retries: int = 0
    wait_ms: int = 0
    readers: frozenset[str] = frozenset()
    epochs: Mapping[TopicPartition, tuple[int, int]] = attrs.field(factory=dict)

    def __add__(self, other: FetchMetrics) -> FetchMetrics:
        epochs = dict(self.epochs)
        for at, read in other.epochs.items():
            epochs[at] = max(epochs.get(at, read), read)
        return FetchMetrics(
            fetches=self.fetches + other.fetches,
            size_bytes=self.size_bytes + other.size_bytes,
            throttle_ms=self.throttle_ms + other.throttle_ms,
            retries=self.retries + other.retries,
            wait_ms=self.wait_ms + other.wait_ms,
            readers=self.readers | other.readers,
            epochs=epochs,
        )


_UNION = {"add": operator.or_}
"""For names, which are named once, and for the greatest values, which a Counter's union takes."""


@attrs.frozen
class TaskMetrics:
    """Counts of a batch, or of a part of it. A new count is one more field.

    `events`, `dead`, `tombstones`, `ignored` and `truncates` are records; `size_bytes` are their keys and values.
    `lone_tombstones` are those that delete a key without a delete event before them.
    `nulled` are values that became null because they could not be converted; `drift` names what events have and their
    table does not take (table index, field); `rows` are the changes of each table (by table index). `late` are keys
    whose changes were older than what their table has, `untold` changes that may be from before or after a truncate.
    `unknown_types` names types of newer versions of Debezium, which are read as the plain type behind the name.
    `unrouted` names topics some of whose events have no field that could name their table, and so go to none.
    `unplaced` names connectors whose flattened events do not tell where they stand in their source's log.
    `fetch` is what reading Kafka took.
    `operations` are the changes by operation (`c`, `u`, `d`, `r`), `newest` is the greatest dedup value of each table.
    `fetch_seconds` and `decode_seconds` are summed over tasks, so they may be more than the batch took.
    """

    events: int = 0
    dead: int = 0
    tombstones: int = 0
    lone_tombstones: int = 0
    ignored: int = 0
    truncates: int = 0
    nulled: int = 0
    drift: frozenset[tuple[int, str]] = attrs.field(default=frozenset(), metadata=_UNION)
    rows: Counter[int] = attrs.field(factory=Counter)
    size_bytes: int = 0
    late: int = 0
    untold: int = 0
    unknown_types: frozenset[str] = attrs.field(default=frozenset(), metadata=_UNION)
    unplaced: frozenset[str] = attrs.field(default=frozenset(), metadata=_UNION)
    unrouted: frozenset[str] = attrs.field(default=frozenset(), metadata=_UNION)
    fetch: FetchMetrics = FetchMetrics()
    operations: Counter[str] = attrs.field(factory=Counter)
    newest: Counter[int] = attrs.field(factory=Counter, metadata=_UNION)
    fetch_seconds: float = 0.0
    decode_seconds: float = 0.0

    def __add__(self, other: TaskMetrics) -> TaskMetrics:
        sides = zip(_COUNTS(self), _COUNTS(other), _ADDITIONS, strict=True)
        # Most counts of most parts are none, and there is one part for each topic-partition.
        return TaskMetrics(*[add(one, more) if one and more else one or more for one, more, add in sides])

    @staticmethod
    def total(parts: Sequence[TaskMetrics]) -> TaskMetrics:
        """Return the sum of all, added in pairs: what counts by table grows with each part that is added to it."""
        while len(parts) > 1:
            rest = parts[len(parts) & ~1 :]
            parts = [*map(operator.add, parts[::2], parts[1::2]), *rest]
        return parts[0] if parts else TaskMetrics()


_COUNTS: Callable[[TaskMetrics], tuple[Any, ...]] = operator.attrgetter(
    *(field.name for field in attrs.fields(TaskMetrics))
)
_ADDITIONS: tuple[Callable[[Any, Any], Any], ...] = tuple(
    field.metadata.get("add", operator.add) for field in attrs.fields(TaskMetrics)
)
