"""Single records by their places, for samples and dead letters: whatever lies beside them, and by both readers."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest

from connector.errors import FatalError, RetriableError
from connector.kafka import record_lookup
from connector.kafka.consumer.readers import with_reader
from connector.kafka.record_lookup import RecordReader
from connector.settings import KafkaSettings
from connector.settings.kafka.reading import ReaderKind
from tests.model.record_batches import GZIP, Record, batch
from tests.servers.brokers import ANCIENT, Brokers, Log
from tests.unit.test_fetch_crafted import CRAFTED
from tests.unit.test_kafka_readers import OFFERED

BOTH: tuple[ReaderKind, ...] = ("native", "librdkafka")
AT = ("t", 0)
HEADERS = (("a", b"1"), ("b", None), ("a", b"2"))


@pytest.fixture
def cluster() -> Iterator[Brokers]:
    """A log from offset 3 on, in batches of two, packed and not, with a gap."""
    with Brokers(OFFERED) as made:
        log = made.logs[AT] = Log(start=3)
        log.add(batch([Record(3, b"k3", b"v3", HEADERS), Record(4, None, b"v4")], 3, 4, GZIP))
        log.add(batch([Record(7, b"k7", None), Record(8, b"k8", b"x" * 100)], 7, 8))
        yield made


def settings(cluster: Brokers, kind: ReaderKind) -> KafkaSettings:
    """Settings that name a reader."""
    return with_reader(KafkaSettings(cluster.servers, (), None, "g", "earliest", {}, {}, {}), kind)


@pytest.mark.parametrize("kind", BOTH)
def test_records_come_from_an_offset_on(cluster: Brokers, kind: ReaderKind) -> None:
    """As many as are wanted, or as there are, or until they are large enough; with keys, values, and all headers."""
    with RecordReader(settings(cluster, kind)) as reader:
        found = reader.read_from({AT: 3}, 20)[AT]
        assert [(one.offset(), one.key(), one.value()) for one in found] == [
            (3, b"k3", b"v3"),
            (4, None, b"v4"),
            (7, b"k7", None),
            (8, b"k8", b"x" * 100),
        ]
        assert tuple(found[0].headers()) == HEADERS
        assert not found[1].headers()
        assert [one.offset() for one in reader.read_from({AT: 4}, 2)[AT]] == [4, 7]
        assert len(reader.read_from({AT: 3}, 20, 2)[AT]) == 1
        assert reader.read_from({AT: 9}, 1)[AT] == []


@pytest.mark.parametrize("kind", BOTH)
def test_a_record_is_found_by_its_offset_or_told_to_be_gone(cluster: Brokers, kind: ReaderKind) -> None:
    """Of offsets that are gone from the log nothing else is given in their place."""
    with RecordReader(settings(cluster, kind)) as reader:
        assert [one.value() for one in reader.read_exactly(AT, [4, 8])] == [b"v4", b"x" * 100]
        with pytest.raises(FatalError, match="t-0 offset 5 is no longer in the topic"):
            list(reader.read_exactly(AT, [5]))
        with pytest.raises(FatalError):
            list(reader.read_exactly(AT, [1]))


@pytest.mark.parametrize("kind", BOTH)
def test_a_record_that_is_not_committed_is_found_where_such_are_read(cluster: Brokers, kind: ReaderKind) -> None:
    """With `isolation.level=read_uncommitted` the record of a dead letter may be in an open transaction."""
    cluster.logs[AT].stable = 5
    committed = settings(cluster, kind)
    every = attrs.evolve(committed, consumer={"isolation.level": "read_uncommitted"})
    with RecordReader(every) as reader:
        assert [one.value() for one in reader.read_exactly(AT, [4, 8])] == [b"v4", b"x" * 100]
    with RecordReader(committed) as reader:
        assert [one.offset() for one in reader.read_from({AT: 3}, 20)[AT]] == [3, 4]


@pytest.mark.parametrize("name", CRAFTED)
def test_batches_that_cannot_be_read_are_no_trouble_to_others(name: str) -> None:
    """A dead letter's record is found in front of a crafted batch and behind it; samples leave that out."""
    with Brokers(OFFERED) as made:
        log = made.logs[AT] = Log()
        for data in (batch([Record(0, b"k", b"a")], 0, 0), CRAFTED[name][0](), batch([Record(2, b"k", b"b")], 2, 2)):
            log.add(data)
        with RecordReader(settings(made, "native")) as reader:
            assert [one.value() for one in reader.read_exactly(AT, [0, 2])] == [b"a", b"b"]
            offsets = [one.offset() for one in reader.read_from({AT: 0}, 20)[AT]]
            assert [offset for offset in offsets if offset != 1] == [0, 2]


def test_brokers_that_are_too_old_for_ours_are_asked_by_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the native reader is asked for by name."""
    monkeypatch.setattr(RecordReader, "_read_by_librdkafka", lambda *_: {AT: ["by librdkafka"]})
    with Brokers(ANCIENT) as old:
        with RecordReader(settings(old, "native")) as reader, pytest.raises(FatalError, match="Fetch: the broker"):
            reader.read_from({AT: 3}, 1)
        with RecordReader(settings(old, "auto")) as reader:
            assert reader.read_from({AT: 3}, 1) == {AT: ["by librdkafka"]}


def test_brokers_that_stay_away_are_told(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the caller is to try again later."""
    monkeypatch.setattr(record_lookup, "LOOKUP_TIMEOUT_S", 0.2)
    cluster.kill(1)
    with RecordReader(settings(cluster, "native")) as reader, pytest.raises(RetriableError, match="no broker answers"):
        reader.read_from({AT: 3}, 1)
