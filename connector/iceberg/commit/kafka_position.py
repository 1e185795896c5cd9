"""Where a connector stands in Kafka, as snapshot summaries and the offsets table hold it (pure).

Design, section 5: the summary of every commit carries the connector's name, the cluster and topic ids, and the end
offset of each topic-partition; the newest ancestor with the connector's name counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs
import orjson

from serde.events.source_positions import NONE

T = TypeVar("T")

TopicPartition = tuple[str, int]

Numbers = tuple[int, ...]
"""A place in a source's log, as `events.source_positions` has it: three numbers, in order of their weight."""


@attrs.frozen
class Mark:
    """How far a source has come: the greatest date that proves something, the greatest place in its log (empty where it
    tells none), and the greatest version that a document was given; `NONE` where unknown.
    """

    date: int = NONE
    place: Numbers = ()
    version: int = NONE

    def joined(self, other: Mark) -> Mark:
        """Give the greater of each."""
        return Mark(max(self.date, other.date), max(self.place, other.place), max(self.version, other.version))

    @property
    def stored(self) -> object:
        """Give it as a number, its date, as a list where it tells more, as nothing where it tells nothing."""
        if self == Mark():
            return None
        if not self.place and self.version == NONE:
            return self.date
        told = [None if number == NONE else number for number in (self.date, self.version)]
        return [*told, *self.place]

    @staticmethod
    def of_stored(found: int | list[int | None] | None) -> Mark:
        """Read what `stored` gave."""
        if found is None:
            return Mark()
        if isinstance(found, int):
            return Mark(found)
        date, version, *place = (NONE if number is None else number for number in found)
        return Mark(date, tuple(place), version)


Watermarks = Mapping[TopicPartition, Mapping[str, Mark]]

NAME = "icebridge.name"
COMMIT_ID = "icebridge.commit-id"
CLUSTER_ID = "icebridge.kafka.cluster-id"
TOPIC_IDS = "icebridge.kafka.topic-ids"
OFFSETS = "icebridge.kafka.offsets"
DRIFT = "icebridge.schema-drift-count"
"""In how many fields events and table have differed since the sink started."""
WATERMARKS = "icebridge.watermarks"
AFTER_DELETE = "icebridge.kafka.after-delete"
TRANSACTION = "icebridge.transaction"
TRUNCATED = "icebridge.truncated"
TRUNCATED_AT = "icebridge.truncated-at"

MADE_BY = "icebridge.made-by"
"""The connector's name in commits that say nothing of where it stands: a truncate, and those to tables of its own."""

WAYS_OUT = (
    "see `icebridge offsets show`; `icebridge offsets reset` with --to tables reads again what the table lost, with "
    "--to stored goes on without it"
)
"""What a person can do about a table that lost what the connector had written."""


def is_ours(summary: Mapping[str, str]) -> bool:
    """Tell by a snapshot's summary whether a connector of this program made it."""
    return NAME in summary or MADE_BY in summary


@attrs.frozen
class Position:
    """The next offset to read of each topic-partition, and the ids of the cluster and topics that these belong to.

    `transaction` is the last one of the source that is complete with it, where transactions are followed.
    Of a table's position also: `watermarks`, how far the table has come per topic-partition and source;
    `after_delete`, offsets behind a delete event, where a tombstone would only repeat it; `truncated`, the source's
    time of the last truncate (epoch nanoseconds), 0 without; `truncated_at`, the number of its source and its place in
    that source's log, where it told them.
    """

    cluster_id: str = ""
    topic_ids: Mapping[str, str] = attrs.field(factory=dict)
    offsets: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    watermarks: Watermarks = attrs.field(factory=dict)
    after_delete: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    transaction: str = ""
    truncated: int = 0
    truncated_at: Numbers = ()

    @property
    def dated(self) -> bool:
        """Whether it says more of a table than offsets, so that a table without rows of the batch is told too."""
        return bool(self.watermarks or self.after_delete or self.truncated or self.truncated_at)

    @property
    def partitions(self) -> Mapping[str, int]:
        """How many partitions of each topic it knows."""
        return Counter(topic for topic, _ in self.offsets)

    def advanced(self, other: Position) -> Position:
        """Give this position moved on to `other`, which knows some or all of the topic-partitions."""
        offsets = {**self.offsets, **other.offsets}
        return Position(
            other.cluster_id or self.cluster_id,
            {**self.topic_ids, **other.topic_ids},
            offsets,
            {**self.watermarks, **other.watermarks},
            {at: o for at, o in {**self.after_delete, **other.after_delete}.items() if o == offsets.get(at)},
            other.transaction or self.transaction,
            max(other.truncated, self.truncated),
            other.truncated_at or self.truncated_at,
        )

    def only(self, topics: Iterable[str]) -> Position:
        """Give the part of the position that is about some topics."""
        wanted = set(topics)
        return Position(
            self.cluster_id,
            {topic: value for topic, value in self.topic_ids.items() if topic in wanted},
            {at: offset for at, offset in self.offsets.items() if at[0] in wanted},
            {at: dates for at, dates in self.watermarks.items() if at[0] in wanted},
            {at: offset for at, offset in self.after_delete.items() if at[0] in wanted},
            self.transaction,
            self.truncated,
            self.truncated_at,
        )

    def behind(self, other: Position) -> list[TopicPartition]:
        """Give the topic-partitions in which this position is before `other`."""
        return sorted(at for at, offset in other.offsets.items() if self.offsets.get(at, 0) < offset)

    def json(self) -> bytes:
        """Give the position as the offsets table stores it."""
        document: dict[str, object] = {
            "cluster-id": self.cluster_id,
            "topic-ids": dict(self.topic_ids),
            "offsets": nested(self.offsets),
        }
        more: dict[str, object] = {
            "watermarks": nested(_stored(self.watermarks)),
            "after-delete": nested(self.after_delete),
            "transaction": self.transaction,
            "truncated": self.truncated,
            "truncated-at": self.truncated_at,
        }
        return orjson.dumps({**document, **{k: v for k, v in more.items() if v}}, option=orjson.OPT_SORT_KEYS)

    @staticmethod
    def parse(text: str | bytes) -> Position:
        """Read what `json` wrote."""
        document = orjson.loads(text)
        return Position(
            document["cluster-id"],
            document["topic-ids"],
            flat(document["offsets"]),
            _read(document.get("watermarks", {})),
            flat(document.get("after-delete", {})),
            document.get("transaction", ""),
            document.get("truncated", 0),
            tuple(document.get("truncated-at", ())),
        )

    def summary(self, name: str, commit_id: str) -> dict[str, str]:
        """Give the snapshot summary properties of a commit at this position."""
        own = {NAME: name, COMMIT_ID: commit_id, CLUSTER_ID: self.cluster_id}
        parts = {
            TOPIC_IDS: dict(self.topic_ids),
            OFFSETS: nested(self.offsets),
            WATERMARKS: nested(_stored(self.watermarks)),
            AFTER_DELETE: nested(self.after_delete),
        }
        told = {key: part for key, part in parts.items() if part or key in (TOPIC_IDS, OFFSETS)}
        if self.transaction:
            own[TRANSACTION] = self.transaction
        if self.truncated:
            own[TRUNCATED] = str(self.truncated)
        if self.truncated_at:
            own[TRUNCATED_AT] = orjson.dumps(self.truncated_at).decode()
        return own | {key: orjson.dumps(part, option=orjson.OPT_SORT_KEYS).decode() for key, part in told.items()}

    @staticmethod
    def of_summary(summary: Mapping[str, str], name: str) -> Position | None:
        """Read a snapshot's position, None when the snapshot is not this connector's."""
        if summary.get(NAME) != name:
            return None
        read = {key: orjson.loads(summary.get(key, "{}")) for key in (TOPIC_IDS, OFFSETS, WATERMARKS, AFTER_DELETE)}
        return Position(
            summary.get(CLUSTER_ID, ""),
            read[TOPIC_IDS],
            flat(read[OFFSETS]),
            _read(read[WATERMARKS]),
            flat(read[AFTER_DELETE]),
            summary.get(TRANSACTION, ""),
            int(summary.get(TRUNCATED, "0")),
            tuple(orjson.loads(summary.get(TRUNCATED_AT, "[]"))),
        )


def _stored(marks: Watermarks) -> dict[TopicPartition, dict[str, object]]:
    return {at: {source: mark.stored for source, mark in known.items()} for at, known in marks.items()}


def _read(stored: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Watermarks:
    return {at: {name: Mark.of_stored(mark) for name, mark in known.items()} for at, known in flat(stored).items()}


def nested(offsets: Mapping[TopicPartition, T]) -> dict[str, dict[str, T]]:
    """Give offsets as Kafka tools write them: topic, then partition (as text), then offset; watermarks likewise."""
    result: dict[str, dict[str, T]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[str(partition)] = offset
    return result


def flat(offsets: Mapping[str, Mapping[str, T]]) -> dict[TopicPartition, T]:
    """Turn the nested form back."""
    return {(topic, int(p)): offset for topic, parts in offsets.items() for p, offset in parts.items()}
