"""The dead letter topic -> letters, what became of them, and marks of those put through again. On the driver.

A mark is a record of the same topic with key and value as they were put through (repaired, maybe); its header
`__icebridge.replayed` names the letter. Several connectors may share a topic: each sees its own letters alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import attrs

from connector.kafka.admin import KafkaAdmin
from connector.kafka.dlq.producer import (
    HEADER_PREFIX,
    OMITTED_HEADER,
    OMITTED_HEADERS_HEADER,
    OMITTED_KEY_HEADER,
    DeadLetterMessage,
    DeadLetterProducer,
    Headers,
)
from connector.kafka.record_lookup import FoundRecord, RecordReader
from connector.runtime.topic_partitions import UNKNOWN_TOPIC_IDS
from connector.settings import KafkaSettings

REPLAYED_HEADER = "__icebridge.replayed"
_CONNECTOR_HEADER = f"{HEADER_PREFIX}connector.name"
_NUMBER = re.compile(r"[0-9]{1,19}")
_PAGE_RECORDS = 20_000
_ID_CHARS = 8
"""Of a topic's id: what tells one from another of its name."""


@attrs.frozen
class DeadLetterRecord:
    """A letter: its id (`partition-offset` in the dead letter topic), the record, where it stood, and why it is dead.

    `topic_id` is that of the record's topic, `log_id` that of the dead letter topic; empty where nobody told. `key` and
    `value` are as they came; of a letter that was `replayed`, as they were put through. One whose value was too large
    for the topic is `omitted`: its value is not null, it is not here.
    """

    id: str
    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    key: bytes | None = attrs.field(repr=False)
    value: bytes | None = attrs.field(repr=False)
    replayed: bool = False
    headers: tuple[tuple[str, bytes | None], ...] = attrs.field(default=(), repr=False)
    """Those that the record came with."""
    omitted: bool = False
    shortened: bool = False
    """Whether it goes without the record's headers too, maybe without its key: they were too large as well."""
    key_omitted: bool = False
    """Whether it goes without its key, which is not null."""
    topic_id: str = ""
    log_id: str = ""
    earlier: frozenset[str] = frozenset()
    """Ids of letters of the same record from before: after a crash it is dead twice, and where it is read again."""

    @property
    def place(self) -> tuple[str, int, int, str]:
        """Topic, partition and offset of the record, and the topic's id: another of its name has such offsets too."""
        return self.topic, self.partition, self.offset, self.topic_id

    @property
    def name(self) -> str:
        """What a commit calls it that puts it through: by its id alone it is any dead letter topic's of the name."""
        return self._name(self.id)

    @property
    def names(self) -> set[str]:
        """What a commit may call it: those of earlier versions name a letter by its id alone."""
        ids = {self.id, *self.earlier}
        return ids | set(map(self._name, ids))

    def _name(self, letter: str) -> str:
        return f"{letter}@{self.log_id[:_ID_CHARS]}" if self.log_id else letter


def read_dead_letters(cluster: KafkaAdmin, kafka: KafkaSettings, topic: str, connector: str) -> list[DeadLetterRecord]:
    """Return a connector's letters in a dead letter topic, in the order of their records; none without the topic.

    A record whose letter was written twice (after a crash) is given once, by its last letter. A mark of a letter before
    says nothing of it: the record was read again since, as after a reset of offsets, and what had been put through may
    be gone. Raises RetriableError when the broker is away.
    """
    log = cluster.topics([topic]).get(topic) if topic in cluster.names() else None
    if log is None:
        return []
    at = [(topic, partition) for partition in range(log.partitions)]
    ends, starts = cluster.fetch_end_offsets(at), cluster.fetch_beginning_offsets(at)
    found: dict[tuple[str, int, int, str], DeadLetterRecord] = {}
    ids: dict[tuple[str, int, int, str], set[str]] = {}
    done: dict[str, FoundRecord] = {}
    with RecordReader(kafka) as records:
        for where in at:
            for message in read_range(records, where, starts[where], ends[where]):
                own, reasons = _split_headers(message)
                letter = _parse_dead_letter(message, own, reasons)
                if letter is None and REPLAYED_HEADER in reasons:
                    done[reasons[REPLAYED_HEADER]] = message
                elif letter is not None and reasons.get(_CONNECTOR_HEADER, connector) == connector:
                    found[letter.place] = attrs.evolve(letter, log_id=log.id)
                    ids.setdefault(letter.place, set()).add(letter.id)
    told = (attrs.evolve(letter, earlier=frozenset(ids[at] - {letter.id})) for at, letter in found.items())
    letters = (_apply_replay_mark(letter, done.get(letter.id)) for letter in _join_letters(told))
    return sorted(letters, key=lambda letter: letter.place)


def _join_letters(letters: Iterable[DeadLetterRecord]) -> Iterator[DeadLetterRecord]:
    """Return letters of which none is of a record that another one is of too.

    One without a topic's id (of an earlier version, or brokers that told none) is of the topic that the others of its
    offset name, if they name one alone: an append table would get its row twice.
    """
    by_record: dict[tuple[str, int, int], list[DeadLetterRecord]] = {}
    for letter in letters:
        by_record.setdefault(letter.place[:3], []).append(letter)
    for found in by_record.values():
        topic_ids = {letter.topic_id for letter in found} - UNKNOWN_TOPIC_IDS
        if len(found) == 1 or len(topic_ids) > 1:
            yield from found
            continue
        last = max(found, key=lambda letter: tuple(map(int, letter.id.split("-"))))
        names = frozenset().union(*({letter.id, *letter.earlier} for letter in found)) - {last.id}
        yield attrs.evolve(last, topic_id="".join(topic_ids), earlier=names)


def _apply_replay_mark(letter: DeadLetterRecord, mark: FoundRecord | None) -> DeadLetterRecord:
    if mark is None:
        return letter
    key, value, (_, headers) = _to_bytes(mark.key()), _to_bytes(mark.value()), _split_headers(mark)
    omitted = value is None and OMITTED_HEADER in headers
    key = letter.key if key is None and OMITTED_KEY_HEADER in headers else key
    return attrs.evolve(letter, replayed=True, key=key, value=value, omitted=omitted)


def read_range(records: RecordReader, at: tuple[str, int], start: int, end: int) -> Iterable[FoundRecord]:
    """Return the records of a topic-partition from `start` up to, not including, `end`, some thousands at a time."""
    while start < end:
        found = records.read_from({at: start}, min(_PAGE_RECORDS, end - start))[at]
        for message in found:
            if message.offset() < end:
                yield message
        if not found:
            return
        start = found[-1].offset() + 1


def mark_replayed(kafka: KafkaSettings, topic: str, letters: Iterable[DeadLetterRecord]) -> None:
    """Note that letters were put through as they are here; without a value that the topic does not take.

    Raises:
        RetriableError: there was no acknowledgement in time.
        FatalError: the topic refuses a mark.
    """
    producer = DeadLetterProducer(topic, kafka)
    for letter in letters:
        headers = ((REPLAYED_HEADER, letter.id.encode()),)
        producer.produce(DeadLetterMessage(letter.id, letter.key, letter.value, (), headers))
    producer.flush()


def _split_headers(message: FoundRecord) -> tuple[Headers, Mapping[str, str]]:
    """Return the headers that a record came with, and those behind them: why it is dead, or what a mark says.

    The reasons begin with the record's topic, the last time that it is named: the record may have been a letter before,
    or a mark, of another connector.
    """
    headers: Headers = tuple(message.headers() or ())
    starts = [place for place, (name, _) in enumerate(headers) if name == f"{HEADER_PREFIX}topic"]
    start = starts[-1] if starts else 0
    return headers[:start], {name: (value or b"").decode("utf-8", "replace") for name, value in headers[start:]}


def _parse_dead_letter(message: FoundRecord, own: Headers, reasons: Mapping[str, str]) -> DeadLetterRecord | None:
    record_place = {name: reasons.get(HEADER_PREFIX + name, "") for name in ("topic", "partition", "offset")}
    if not record_place["topic"] or not all(_NUMBER.fullmatch(record_place[name]) for name in ("partition", "offset")):
        return None
    return DeadLetterRecord(
        id=f"{message.partition()}-{message.offset()}",
        topic=record_place["topic"],
        partition=int(record_place["partition"]),
        offset=int(record_place["offset"]),
        stage=reasons.get(f"{HEADER_PREFIX}stage", ""),
        reason=reasons.get(f"{HEADER_PREFIX}exception.message", ""),
        key=_to_bytes(message.key()),
        value=_to_bytes(message.value()),
        headers=own,
        omitted=OMITTED_HEADER in reasons and message.value() is None,
        shortened=OMITTED_HEADERS_HEADER in reasons or OMITTED_KEY_HEADER in reasons,
        key_omitted=OMITTED_KEY_HEADER in reasons,
        topic_id=reasons.get(f"{HEADER_PREFIX}topic.id", ""),
    )


def _to_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
