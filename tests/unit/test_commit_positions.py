"""Positions of tables: the part of a batch's that is about some topics, and what a start says where they contradict."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from connector.errors import GapError
from connector.iceberg.commit.commit_summary import COMMIT_ID
from connector.iceberg.commit.kafka_offsets import KafkaOffsets, LastTruncate, Watermark
from connector.iceberg.commit.last_commit import is_rolled_back, parse_last_commit
from connector.kafka.admin import TopicInfo
from connector.sink.microbatch.start_offsets import ClusterState, find_starting_offsets

pytestmark = pytest.mark.unit

HERE, THERE = ("t", 0), ("u", 3)
WHOLE = KafkaOffsets(
    "c1",
    {"t": "id-t", "u": "id-u"},
    {HERE: 4, THERE: 5},
    {HERE: {"s": Watermark(7)}, THERE: {"s": Watermark(8)}},
    {HERE: 4, THERE: 5},
    "transaction 9",
    {"s": LastTruncate(100)},
    {HERE: 1, THERE: 2},
)


def test_the_part_of_a_position_that_is_about_some_topics() -> None:
    """It has what is told by topic of these only, and all that is told of the whole."""
    part = WHOLE.only(["t"])
    assert part == KafkaOffsets(
        "c1",
        {"t": "id-t"},
        {HERE: 4},
        {HERE: {"s": Watermark(7)}},
        {HERE: 4},
        "transaction 9",
        {"s": LastTruncate(100)},
        {HERE: 1},
    )


def test_a_position_moves_on() -> None:
    """What the later one tells takes the place of what was known of the same; what it does not tell stays."""
    before = WHOLE.only(["t"])
    news = KafkaOffsets("", {"u": "id-u"}, {THERE: 5}, {THERE: {"s": Watermark(8)}}, {THERE: 5}, epochs={THERE: 2})
    assert before.advance(news) == WHOLE
    later = KafkaOffsets(
        "c2", {"u": "id-v"}, {THERE: 6}, {THERE: {"s": Watermark(9)}}, {THERE: 6}, "transaction 10", epochs={THERE: 3}
    )
    assert WHOLE.advance(later) == KafkaOffsets(
        "c2",
        {"t": "id-t", "u": "id-v"},
        {HERE: 4, THERE: 6},
        {HERE: {"s": Watermark(7)}, THERE: {"s": Watermark(9)}},
        {HERE: 4, THERE: 6},
        "transaction 10",
        {"s": LastTruncate(100)},
        {HERE: 1, THERE: 3},
    )


def test_a_position_without_topic_ids_does_not_go_back() -> None:
    """What was stored before brokers told ids is of the same topic: a batch that ends earlier changes nothing."""
    assert KafkaOffsets("c1", {}, {HERE: 4}).advance(KafkaOffsets("c1", {"t": "id-t"}, {HERE: 2})).offsets == {HERE: 4}


def test_where_a_position_is_behind_another() -> None:
    """In the topic-partitions where the other has read more, also where only the other has begun; in their order."""
    ahead = KafkaOffsets(offsets={THERE: 6, HERE: 4, ("t", 1): 1, ("t", 2): 0})
    assert WHOLE.behind(ahead) == [("t", 1), THERE]
    assert WHOLE.behind(WHOLE) == []


def test_a_commit_without_anything_tells_where_it_stands_too() -> None:
    """Its summary has the offsets and topics, which may be none, and nothing else that is empty."""
    summary = KafkaOffsets("c1").summary("n", "abc")
    assert summary == {
        "icebridge.name": "n",
        "icebridge.commit-id": "abc",
        "icebridge.kafka.cluster-id": "c1",
        "icebridge.kafka.topic-ids": "{}",
        "icebridge.kafka.offsets": "{}",
    }
    assert KafkaOffsets.from_summary(summary, "n") == KafkaOffsets("c1")
    assert KafkaOffsets.from_summary({"icebridge.name": "n"}, "n") == KafkaOffsets()
    assert KafkaOffsets.parse(b'{"cluster-id":"","topic-ids":{},"offsets":{}}') == KafkaOffsets()
    assert KafkaOffsets.from_summary(summary, "another") is None


def test_a_position_is_read_as_it_was_written() -> None:
    """All of its parts come back from the offsets table, and all but the epochs from a snapshot."""
    assert KafkaOffsets.parse(WHOLE.json()) == WHOLE
    told = KafkaOffsets.from_summary(WHOLE.summary("n", "abc"), "n")
    assert told == attrs.evolve(WHOLE, epochs={})


def test_a_position_is_stored_in_one_form() -> None:
    """Whatever order its parts came in, so that a process knows what it wrote."""
    a, b = LastTruncate(1), LastTruncate(2)
    other = KafkaOffsets("c1", {"u": "id-u", "t": "id-t"}, {THERE: 5, HERE: 4}, truncates={"b": b, "a": a})
    same = KafkaOffsets("c1", {"t": "id-t", "u": "id-u"}, {HERE: 4, THERE: 5}, truncates={"a": a, "b": b})
    assert other.json() == same.json()
    summaries = [one.summary("n", "1") for one in (other, same)]
    assert summaries[0] == summaries[1]
    assert KafkaOffsets.from_summary({"other": ""} | summaries[0], "n") == other


def _snapshot(**told: str) -> Snapshot:
    summary = Summary(Operation.APPEND, **told)
    return Snapshot(**{"snapshot-id": 1, "manifest-list": "m", "sequence-number": 6}, summary=summary)


def test_a_commit_is_known_by_its_snapshot() -> None:
    """It has the snapshot's sequence number; a snapshot of somebody else is none."""
    own = parse_last_commit(_snapshot(**WHOLE.summary("n", "abc")), "n")
    assert own is not None
    assert (own.commit_id, own.sequence_number, own.position.offsets) == ("abc", 6, WHOLE.offsets)
    assert parse_last_commit(_snapshot(**{COMMIT_ID: "abc"}), "n") is None


def test_a_commit_to_a_table_of_format_version_1() -> None:
    """Its snapshots have no sequence number, and those of other engines may have no summary."""
    told = Summary(Operation.APPEND, **WHOLE.summary("n", "abc"))
    facts: dict[str, Any] = {"snapshot-id": 1, "manifest-list": "m"}
    own = parse_last_commit(Snapshot(**facts, summary=told), "n")
    assert own is not None and own.sequence_number == 0
    assert parse_last_commit(Snapshot(**facts), "n") is None


@pytest.mark.parametrize(
    ("parent", "sequence_number", "lost"), [(None, 9, True), (3, 4, True), (3, 5, False), (3, 6, False)]
)
def test_what_expired_is_older_than_what_is_left(parent: int | None, sequence_number: int, lost: bool) -> None:
    """The oldest snapshot that is left names a parent, and has no smaller number than the one that is missing."""
    assert is_rolled_back(parent, sequence_number, 5) is lost


SEEN = ClusterState("c1", {"t": TopicInfo("t", "id-t", 1)}, {HERE: 4}, {HERE: 9})


def test_a_start_at_the_oldest_record() -> None:
    """Nothing is lost where retention has come just as far as was read."""
    stored = KafkaOffsets("c1", {"t": "id-t"}, {HERE: 4})
    found = find_starting_offsets(stored, {}, {}, SEEN, "earliest")
    assert (found.offsets, found.cluster_id) == ({HERE: 4}, "c1")
    with pytest.raises(GapError, match=r"^t-0 begins at offset 4, after the stored offset 3:"):
        find_starting_offsets(KafkaOffsets("c1", {"t": "id-t"}, {HERE: 3}), {}, {}, SEEN, "earliest")


def test_tables_alone_tell_their_cluster() -> None:
    """Without stored offsets those of the tables hold, which are of one cluster."""
    table = KafkaOffsets("c2", {"t": "id-t"}, {HERE: 5})
    with pytest.raises(GapError, match="cluster c2, this is c1"):
        find_starting_offsets(None, {"d.t": table}, {}, SEEN, "earliest")


def test_a_table_that_does_not_know_a_partition_stands_at_its_beginning() -> None:
    """What the offsets table says beyond it was lost."""
    table, noted = KafkaOffsets("c1", {"t": "id-t"}, {THERE: 5}), KafkaOffsets("c1", {"t": "id-t"}, {HERE: 5})
    with pytest.raises(GapError, match=r"table d.t is at 0 of t-0 by its newest snapshot, and at 5 "):
        find_starting_offsets(noted, {"d.t": table}, {"d.t": noted}, SEEN, "earliest")
