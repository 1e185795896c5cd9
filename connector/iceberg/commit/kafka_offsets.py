"""Snapshot summaries and rows of the offsets table <-> the Kafka offsets of a connector or a table (pure).

The summary of every commit carries the connector's name, the cluster and topic ids, and the end
offset of each topic-partition; the newest ancestor with the connector's name counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import orjson

from connector.iceberg.commit.commit_summary import (
    AFTER_DELETE,
    CLUSTER_ID,
    COMMIT_ID,
    CONNECTOR_NAME,
    OFFSETS,
    TOPIC_IDS,
    TRANSACTION,
    TRUNCATED,
    TRUNCATED_AT,
    TRUNCATES,
    WATERMARKS,
)
from connector.runtime.topic_partitions import (
    TopicPartition,
    flatten_by_partition,
    is_other_topic,
    nest_by_topic,
)
from serde.events.positions.log_positions import NO_VALUE, strip_log_name

SourcePosition = tuple[int, ...]
"""A place in a source's log, as `positions.log_positions` has it: three numbers, in order of their weight."""


@attrs.frozen
class Watermark:
    """How far a source has come: the greatest date that proves something, the greatest place in its log (empty where it
    tells none), and the greatest version that a document was given; `NO_VALUE` where unknown.
    """

    date: int = NO_VALUE
    place: SourcePosition = ()
    version: int = NO_VALUE

    def join(self, other: Watermark) -> Watermark:
        """Return the greater of each."""
        return Watermark(max(self.date, other.date), max(self.place, other.place), max(self.version, other.version))

    @property
    def stored(self) -> object:
        """Return it as a number, its date, as a list where it tells more, as nothing where it tells nothing."""
        if self == Watermark():
            return None
        if not self.place and self.version == NO_VALUE:
            return self.date
        numbers = [None if number == NO_VALUE else number for number in (self.date, self.version)]
        return [*numbers, *self.place]

    @staticmethod
    def from_stored(found: int | list[int | None] | None) -> Watermark:
        """Read what `stored` gave."""
        if found is None:
            return Watermark()
        if isinstance(found, int):
            return Watermark(found)
        date, version, *place = (NO_VALUE if number is None else number for number in found)
        return Watermark(date, tuple(place), version)


Watermarks = Mapping[TopicPartition, Mapping[str, Watermark]]

ALL_SOURCES = "*"
"""Stands for the name of a source in what all share: a watermark, or a truncate that earlier versions noted."""

MAX_TRUNCATES = 200
"""Truncates that a commit's summary keeps: the latest, one per source."""


@attrs.frozen
class LastTruncate:
    """The last truncate of a source: its time (epoch nanoseconds), 0 where it told none, and the number of its source
    with its place in that source's log, where it told them.
    """

    ts_ns: int = 0
    place: SourcePosition = ()

    def after(self, before: LastTruncate | None) -> LastTruncate:
        """Return this one, with what only the one before it told."""
        return self if before is None else LastTruncate(max(before.ts_ns, self.ts_ns), self.place or before.place)

    @property
    def stored(self) -> list[int]:
        """Return it as a list of numbers."""
        return [self.ts_ns, *self.place]

    @staticmethod
    def from_stored(found: list[int]) -> LastTruncate:
        """Read what `stored` gave."""
        return LastTruncate(found[0], tuple(found[1:]))


@attrs.frozen
class KafkaOffsets:
    """The next offset to read of each topic-partition, and the ids of the cluster and topics that these belong to.

    `transaction` is the last one of the source that is complete with it, where transactions are followed. `epochs` are
    the leader epochs of the records in front of the offsets, as far as they are known: a log that was cut since is
    noticed by them.
    Of a table's position also: `watermarks`, how far the table has come per topic-partition and source;
    `after_delete`, offsets behind a delete event, where a tombstone would only repeat it; `truncates`, the last
    truncate of each source that had one, by its name (without that of its log).
    """

    cluster_id: str = ""
    topic_ids: Mapping[str, str] = attrs.field(factory=dict)
    offsets: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    watermarks: Watermarks = attrs.field(factory=dict)
    after_delete: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    transaction: str = ""
    truncates: Mapping[str, LastTruncate] = attrs.field(factory=dict)
    epochs: Mapping[TopicPartition, int] = attrs.field(factory=dict)

    @property
    def dated(self) -> bool:
        """Whether it says more of a table than offsets, so that a table without rows of the batch is told too."""
        return bool(self.watermarks or self.after_delete or self.truncates)

    @property
    def partitions(self) -> Mapping[str, int]:
        """How many partitions of each topic it knows."""
        return Counter(topic for topic, _ in self.offsets)

    def advance(self, other: KafkaOffsets) -> KafkaOffsets:
        """Return this position moved on to `other`, which knows some or all of the topic-partitions.

        It never goes back: a table may be ahead of a batch that is read again after a crash and ends earlier this time.
        """
        offsets = {**self.offsets, **{at: self._at_least(at, offset, other) for at, offset in other.offsets.items()}}
        return KafkaOffsets(
            other.cluster_id or self.cluster_id,
            {**self.topic_ids, **other.topic_ids},
            offsets,
            {**self.watermarks, **other.watermarks},
            {at: o for at, o in {**self.after_delete, **other.after_delete}.items() if o == offsets.get(at)},
            other.transaction or self.transaction,
            _merge_truncates(self.truncates, other.truncates),
            {at: e for own in (self, other) for at, e in own.epochs.items() if own.offsets.get(at) == offsets.get(at)},
        )

    def _at_least(self, at: TopicPartition, offset: int, other: KafkaOffsets) -> int:
        """Return the greater offset of both, the other's where the topic is another one by now."""
        mine, theirs = self.topic_ids.get(at[0], ""), other.topic_ids.get(at[0], "")
        return offset if is_other_topic(mine, theirs) else max(offset, self.offsets.get(at, offset))

    def only(self, topics: Iterable[str]) -> KafkaOffsets:
        """Return the part of the position that is about some topics."""
        wanted = set(topics)
        return KafkaOffsets(
            self.cluster_id,
            {topic: value for topic, value in self.topic_ids.items() if topic in wanted},
            {at: offset for at, offset in self.offsets.items() if at[0] in wanted},
            {at: dates for at, dates in self.watermarks.items() if at[0] in wanted},
            {at: offset for at, offset in self.after_delete.items() if at[0] in wanted},
            self.transaction,
            self.truncates,
            {at: epoch for at, epoch in self.epochs.items() if at[0] in wanted},
        )

    def behind(self, other: KafkaOffsets) -> list[TopicPartition]:
        """Return the topic-partitions in which this position is before `other`."""
        return sorted(at for at, offset in other.offsets.items() if self.offsets.get(at, 0) < offset)

    def json(self) -> bytes:
        """Return the position as the offsets table stores it."""
        document: dict[str, object] = {
            "cluster-id": self.cluster_id,
            "topic-ids": dict(self.topic_ids),
            "offsets": nest_by_topic(self.offsets),
        }
        more: dict[str, object] = {
            "watermarks": nest_by_topic(_encode_watermarks(self.watermarks)),
            "after-delete": nest_by_topic(self.after_delete),
            "transaction": self.transaction,
            "truncates": _encode_truncates(self.truncates),
            "epochs": nest_by_topic(self.epochs),
        }
        return orjson.dumps({**document, **{k: v for k, v in more.items() if v}}, option=orjson.OPT_SORT_KEYS)

    @staticmethod
    def parse(text: str | bytes) -> KafkaOffsets:
        """Read what `json` wrote."""
        document = orjson.loads(text)
        return KafkaOffsets(
            document["cluster-id"],
            document["topic-ids"],
            flatten_by_partition(document["offsets"]),
            _decode_watermarks(document.get("watermarks", {})),
            flatten_by_partition(document.get("after-delete", {})),
            document.get("transaction", ""),
            _decode_truncates(
                document.get("truncates", {}), document.get("truncated", 0), document.get("truncated-at", ())
            ),
            flatten_by_partition(document.get("epochs", {})),
        )

    def summary(self, name: str, commit_id: str) -> dict[str, str]:
        """Return the snapshot summary properties of a commit at this position."""
        own = {CONNECTOR_NAME: name, COMMIT_ID: commit_id, CLUSTER_ID: self.cluster_id}
        parts = {
            TOPIC_IDS: dict(self.topic_ids),
            OFFSETS: nest_by_topic(self.offsets),
            WATERMARKS: nest_by_topic(_encode_watermarks(self.watermarks)),
            AFTER_DELETE: nest_by_topic(self.after_delete),
        }
        non_empty = {key: part for key, part in parts.items() if part or key in (TOPIC_IDS, OFFSETS)}
        if self.transaction:
            own[TRANSACTION] = self.transaction
        if self.truncates:
            own[TRUNCATES] = orjson.dumps(_encode_truncates(self.truncates), option=orjson.OPT_SORT_KEYS).decode()
        return own | {key: orjson.dumps(part, option=orjson.OPT_SORT_KEYS).decode() for key, part in non_empty.items()}

    @staticmethod
    def from_summary(summary: Mapping[str, str], name: str) -> KafkaOffsets | None:
        """Read a snapshot's position, None when the snapshot is not this connector's."""
        if summary.get(CONNECTOR_NAME) != name:
            return None
        read = {key: orjson.loads(summary.get(key, "{}")) for key in (TOPIC_IDS, OFFSETS, WATERMARKS, AFTER_DELETE)}
        return KafkaOffsets(
            summary.get(CLUSTER_ID, ""),
            read[TOPIC_IDS],
            flatten_by_partition(read[OFFSETS]),
            _decode_watermarks(read[WATERMARKS]),
            flatten_by_partition(read[AFTER_DELETE]),
            summary.get(TRANSACTION, ""),
            _decode_truncates(
                *(
                    orjson.loads(summary.get(*each))
                    for each in ((TRUNCATES, "{}"), (TRUNCATED, "0"), (TRUNCATED_AT, "[]"))
                )
            ),
        )


def _encode_watermarks(marks: Watermarks) -> dict[TopicPartition, dict[str, object]]:
    return {at: {source: mark.stored for source, mark in known.items()} for at, known in marks.items()}


def _decode_watermarks(stored: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Watermarks:
    return {
        at: {name: Watermark.from_stored(mark) for name, mark in known.items()}
        for at, known in flatten_by_partition(stored).items()
    }


def find_sources_of_others(summaries: Iterable[Mapping[str, str]], name: str) -> frozenset[str]:
    """Return the names of sources whose rows other connectors brought into a table, `ALL_SOURCES` for unknown ones.

    Args:
        summaries: of its snapshots, newest first.
        name: the connector's own.
    """
    found, seen = set[str](), {name}
    for summary in summaries:
        other = summary.get(CONNECTOR_NAME, name)
        position = None if other in seen else KafkaOffsets.from_summary(summary, other)
        seen.add(other)
        if position is not None:
            found |= {source for marks in position.watermarks.values() for source in marks} or {ALL_SOURCES}
    return frozenset(map(strip_log_name, found))


def _merge_truncates(
    known: Mapping[str, LastTruncate], later: Mapping[str, LastTruncate]
) -> Mapping[str, LastTruncate]:
    truncates = {**known, **{name: each.after(known.get(name)) for name, each in later.items()}}
    if len(truncates) <= MAX_TRUNCATES:
        return truncates
    latest = sorted(truncates, key=lambda name: (truncates[name].ts_ns, name))[-MAX_TRUNCATES:]
    return {name: truncates[name] for name in latest}


def _encode_truncates(truncates: Mapping[str, LastTruncate]) -> dict[str, list[int]]:
    return {name: each.stored for name, each in truncates.items()}


def _decode_truncates(stored: Mapping[str, list[int]], ts_ns: int, place: Iterable[int]) -> dict[str, LastTruncate]:
    """Read truncates; earlier versions wrote that of a table's only source, without its name."""
    shared = LastTruncate(ts_ns, tuple(place))
    before = {} if shared == LastTruncate() else {ALL_SOURCES: shared}
    return before | {name: LastTruncate.from_stored(each) for name, each in stored.items()}
