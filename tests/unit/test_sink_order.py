"""Which changes may be late, what is remembered of deletes, and when a table cannot be gone on with (pure rules)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa
import pytest
import structlog
from pyiceberg.table.snapshots import Snapshot

from connector.errors import ConfigError, GapError, RetriableError, TimeOver
from connector.iceberg.commit.commit import expect_last_commit
from connector.iceberg.commit.commit_summary import COMMIT_ID, CONNECTOR_NAME
from connector.iceberg.commit.kafka_offsets import (
    ALL_SOURCES,
    MAX_TRUNCATES,
    KafkaOffsets,
    LastTruncate,
    Watermark,
    find_sources_of_others,
)
from connector.iceberg.commit.last_commit import LastCommit, find_last_commit, is_rolled_back
from connector.iceberg.java import iterate
from connector.runtime.retry import call_with_retries
from connector.settings import ErrorSettings, load
from connector.sink.destinations.deleted_keys import DeletedKeyLog, build_deleted_key_rows, keys_to_text
from connector.sink.fold.fold import find_last_deletes, fold
from connector.sink.fold.late_events import split_late_candidates
from connector.sink.fold.watermarks import (
    GROWN_PARTITION,
    MAX_SOURCES,
    PARTITIONS_BEFORE,
    advance_watermarks,
    find_latest_by_source,
    find_limits,
    mark_late_candidates,
    merge_progress,
    track_grown_topics,
)
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from connector.sink.model.result import SourceProgress
from serde.events.positions.log_positions import NO_VALUE, LogPositions, unknown_positions
from tests.unit.sink_plans import layout, upsert
from tests.unit.test_settings_kafka import BASE, kafka

AT = ("t", 0)


def _origin(*names: str) -> pa.DictionaryArray:
    return pa.array(names).dictionary_encode()


def _dates(*values: int | None) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([NO_VALUE if value is None else value for value in values], np.int64)


def test_only_what_is_older_than_its_sources_watermark_is_suspect() -> None:
    """The watermark's own date, a newer one and none at all are no suspects; another source has a clock of its own."""
    order, origin = _undated(9, 10, 11, None, 5, 5), _origin("a", "a", "a", "a", "b", "c")

    def marked(known: dict[str, Watermark]) -> list[bool]:
        return mark_late_candidates(order, origin, find_limits({AT: known}, AT, origin.dictionary.to_pylist())).tolist()

    assert marked({"a": Watermark(10), "b": Watermark(6)}) == [True, False, False, False, True, False]
    assert not any(marked({}))
    assert marked({ALL_SOURCES: Watermark(7)}) == [False, False, False, False, True, True]


def test_positions_make_suspects_where_both_tell_theirs() -> None:
    """Below the watermark's place, but where the date is above its date: transactions may have run side by side."""
    order, origin = _undated(5, 6, 7, None, 5), _origin("a", "a", "a", "a", "a")
    order = attrs.evolve(order, place=_places((1, 5), (1, 7), (1, 5), (1, 5), None))
    marks = [Watermark(6, (6, 0, 0))]
    assert mark_late_candidates(order, origin, marks).tolist() == [True, False, False, True, True]
    assert mark_late_candidates(order, origin, [Watermark(NO_VALUE, (6, 0, 0))]).tolist() == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_a_topic_that_has_grown_is_read_by_all_its_partitions() -> None:
    """Until a source has written to a new partition; from then on what is older than that is a suspect anywhere."""
    known = {AT: {"a": Watermark(4)}, ("t", 1): {"a": Watermark(9)}, ("u", 0): {"a": Watermark(20)}}
    assert find_limits(known, AT, ["a"]) == [Watermark(4)]
    assert find_limits(known, ("t", 2), ["a"]) == [Watermark()]
    assert find_limits(known, ("t", 2), ["a", "b"], has_grown=True) == [Watermark(9), Watermark()]
    assert find_limits(known, AT, ["a"], has_grown=True) == [Watermark(9)], "keys move to old partitions too"
    fresh = track_grown_topics(known, {"t": 2, "u": 1}, {"t": 3, "u": 1})
    assert fresh == {("t", GROWN_PARTITION): {PARTITIONS_BEFORE: Watermark(2)}}
    assert find_limits({**known, **fresh}, AT, ["a", "b"]) == [Watermark(9), Watermark()]
    known = {**known, **fresh, ("t", 2): {"a": Watermark(12)}}
    settled = track_grown_topics(known, {"t": 3, "u": 1}, {"t": 3, "u": 1})
    assert settled == {("t", GROWN_PARTITION): {PARTITIONS_BEFORE: Watermark(2), "a": Watermark(12)}}
    later = {**known, **settled, ("t", 2): {"a": Watermark(30)}}
    assert find_limits(later, AT, ["a"]) == [Watermark(12)], "what came after the growth is no suspect"
    assert find_limits(later, AT, ["a"], has_grown=True) == [Watermark(30)], "it has grown once more since"
    assert track_grown_topics(later, {"t": 3}, {"t": 3}) == {}
    assert track_grown_topics({}, {}, {"t": 3}) == {}, "a topic that is read for the first time has not grown"


def test_watermarks_only_rise() -> None:
    """Each source's greatest date counts, over tasks and batches; what is late or undated moves nothing."""
    assert find_latest_by_source(_undated(3, 9, None, 4), _origin("a", "a", "b", "c")) == {
        "a": Watermark(9),
        "b": Watermark(),
        "c": Watermark(4),
    }
    assert find_latest_by_source(_undated(None), _origin("a")) == {"a": Watermark()}, "that there is one is known too"
    placed = attrs.evolve(_undated(3, 9, 4), place=_places((1, 7, 1), (1, 7, 3), (1, 6, 9)))
    assert find_latest_by_source(placed, _origin("a", "a", "a")) == {"a": Watermark(9, (7, 3, 0))}
    seen = merge_progress(
        [
            SourceProgress(0, AT, {"a": Watermark(9)}),
            SourceProgress(0, AT, {"a": Watermark(3), "c": Watermark(4)}, 8),
            SourceProgress(1, AT),
        ]
    )
    assert seen == (SourceProgress(0, AT, {"a": Watermark(9), "c": Watermark(4)}, 8), SourceProgress(1, AT))
    assert advance_watermarks({AT: {"a": Watermark(20), "b": Watermark(1)}}, seen[:1]) == {
        AT: {"a": Watermark(20), "b": Watermark(1), "c": Watermark(4)}
    }
    assert advance_watermarks({AT: {"a": Watermark(20), "c": Watermark(7)}}, seen[:1]) == {}


def test_very_many_sources_share_one_watermark() -> None:
    """The summary of a commit stays small: beyond a number of sources there is one watermark, the greatest."""
    many = {f"s{number}": Watermark(number, (number,)) for number in range(MAX_SOURCES + 1)}
    assert advance_watermarks({}, [SourceProgress(0, AT, many)]) == {AT: {ALL_SOURCES: Watermark(MAX_SOURCES)}}
    assert advance_watermarks(
        {AT: {ALL_SOURCES: Watermark(500)}}, [SourceProgress(0, AT, {"new": Watermark(700)})]
    ) == {AT: {ALL_SOURCES: Watermark(700)}}


def test_a_position_travels_as_it_is() -> None:
    """Watermarks, places behind deletes, last transaction and truncate: back from offsets table and summaries."""
    marks = {"a.b": Watermark(7), "b": Watermark(), "c": Watermark(NO_VALUE, (1, 2, 3)), "d": Watermark(8, (), 9)}
    truncates = {"a.b": LastTruncate(1_700_000_000, (5, 1, 2, 3)), "b": LastTruncate(3)}
    position = KafkaOffsets("c", {"t": "i"}, {AT: 4}, {AT: marks}, {AT: 4}, "77", truncates)
    assert KafkaOffsets.parse(position.json()) == position
    assert KafkaOffsets.from_summary(position.summary("n", "id"), "n") == position
    before = KafkaOffsets.parse('{"cluster-id":"c","topic-ids":{},"offsets":{},"watermarks":{"t":{"0":{"a.b":7}}}}')
    assert before.watermarks == {AT: {"a.b": Watermark(7)}}, "as they were stored before places were"
    plain = KafkaOffsets("c", {"t": "i"}, {AT: 4})
    assert "icebridge.watermarks" not in plain.summary("n", "id")
    assert position.advance(KafkaOffsets("c", {}, {AT: 5})).after_delete == {}
    assert position.only(["other"]).watermarks == {}


def test_the_last_truncate_of_each_source_is_kept() -> None:
    """A later one takes the place of its source's; of many the latest stay. What earlier versions wrote is read."""
    stood = KafkaOffsets(truncates={"a": LastTruncate(5, (1, 2)), "b": LastTruncate(9)})
    later = stood.advance(KafkaOffsets(truncates={"a": LastTruncate(7), "c": LastTruncate(0, (4, 5))}))
    assert later.truncates == {"a": LastTruncate(7, (1, 2)), "b": LastTruncate(9), "c": LastTruncate(0, (4, 5))}
    many = KafkaOffsets(truncates={str(n): LastTruncate(n) for n in range(MAX_TRUNCATES)})
    assert set(many.advance(stood).truncates) == {*map(str, range(2, MAX_TRUNCATES)), "a", "b"}
    old = '{"cluster-id":"c","topic-ids":{},"offsets":{},"truncated":7,"truncated-at":[5,1]}'
    assert KafkaOffsets.parse(old).truncates == {ALL_SOURCES: LastTruncate(7, (5, 1))}
    summary = {"icebridge.name": "n", "icebridge.truncated": "7"}
    found = KafkaOffsets.from_summary(summary, "n")
    assert found is not None and found.truncates == {ALL_SOURCES: LastTruncate(7)}


def test_sources_of_other_connectors() -> None:
    """The newest snapshot of each other connector tells its sources; one that tells none has unknown ones."""
    own = KafkaOffsets(watermarks={AT: {"mine": Watermark(1)}}).summary("me", "1")
    other = KafkaOffsets(watermarks={AT: {"s.d.t @7/bin": Watermark(1)}, ("u", 1): {"s.d.u": Watermark()}})
    older = KafkaOffsets(watermarks={AT: {"gone": Watermark(1)}})
    summaries = [own, other.summary("it", "2"), {"operation": "append"}, older.summary("it", "1")]
    assert find_sources_of_others(summaries, "me") == {"s.d.t", "s.d.u"}
    assert find_sources_of_others([own, KafkaOffsets().summary("third", "1")], "me") == {ALL_SOURCES}
    assert find_sources_of_others([own], "me") == frozenset()


def _undated(*dates: int | None) -> ChangeOrder:
    count, known = len(dates), _dates(*dates)
    where = np.zeros(count, np.int64), np.arange(count)
    return ChangeOrder(*where, known, known, unknown_positions(count), np.full(count, ord("u"), np.uint8))


def _places(*told: tuple[int, ...] | None) -> LogPositions:
    places = unknown_positions(len(told), 1)
    for at, place in enumerate(told):
        places[at, : len(place or ())] = place or ()
    return places


def _part(*changes: tuple[int, str, int, int | None], suspect: bool = False) -> ChangeBatch:
    """Changes as (key, operation, offset, date); `-` is a tombstone."""
    keys, ops, offsets, dates = zip(*changes, strict=True)
    codes = np.array([0 if op == "-" else ord(op) for op in ops], np.uint8)
    known = _dates(*dates)
    order = ChangeOrder(
        np.zeros(len(keys), np.int64), np.array(offsets), known, known, unknown_positions(len(keys)), codes
    )
    rows = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], ["id"])
    deleted = np.isin(codes, (0, ord("d")))
    return ChangeBatch(rows, order, deleted, ~deleted, np.full(len(keys), suspect))


def test_a_position_never_goes_back_in_one_topic() -> None:
    """What a batch that is read again ends at moves no offset back; those of a topic that was made again do."""
    topic = AT[0]
    ahead = KafkaOffsets("c", {topic: "first"}, {AT: 9})
    assert ahead.advance(KafkaOffsets("c", {topic: "first"}, {AT: 5})).offsets == {AT: 9}
    assert ahead.advance(KafkaOffsets("c", {}, {AT: 5})).offsets == {AT: 9}
    assert ahead.advance(KafkaOffsets("c", {topic: "other"}, {AT: 5})).offsets == {AT: 5}


def test_a_tombstone_has_the_date_of_the_delete_before_it() -> None:
    """A tombstone behind its delete stands for it wherever tasks are cut; a lone one deletes."""
    whole = fold([_part((1, "c", 1, 9), (1, "d", 2, 5), (1, "-", 3, None))], ["id"])
    assert whole.winners.tolist() == [0]
    ended = fold([_part((1, "c", 1, 4), (1, "d", 2, 5), (1, "-", 3, None))], ["id"])
    assert ended.winners.tolist() == [1]
    first = _part((1, "c", 1, 9), (1, "d", 2, 5))
    assert find_last_deletes([first]).tolist() == [1]
    assert find_last_deletes([_part((1, "-", 3, None))]).tolist() == []
    lone = fold([_part((1, "c", 1, 9)), _part((1, "-", 3, None))], ["id"])
    assert lone.winners.tolist() == [1]


def test_keys_whose_winner_is_a_suspect_wait_with_all_their_changes() -> None:
    """The other keys go on; a key whose newest change is no suspect does not wait."""
    old, new = _part((1, "u", 1, 3), (2, "u", 2, 3), (1, "u", 3, 4), suspect=True), _part((2, "u", 9, 8))
    rest, aside = split_late_candidates(fold([old, new], ["id"]), ("id",))
    assert rest is not None and aside is not None
    assert [rest.parts[0].rows.column("id")[int(i)].as_py() for i in rest.winners] == [2]
    assert (aside.rows.column("id").to_pylist(), aside.suspect.tolist()) == ([1, 1], [False, True])
    assert split_late_candidates(fold([new], ["id"]), ("id",))[1] is None
    assert split_late_candidates(fold([old], ["id"]), ("id",))[0] is None
    again = unpack(pack(aside), pa.schema([("id", pa.int64())]))
    assert again.suspect.tolist() == [False, True]


def test_a_key_is_one_text() -> None:
    """Equal keys have equal texts, also after a column was widened; different ones never."""
    narrow, wide = (keys_to_text([pa.array([1, 2], kind), pa.array(["a", "b"])]) for kind in (pa.int32(), pa.int64()))
    assert narrow.to_pylist() == wide.to_pylist() == ["1,a", "2,b"]
    tricky = keys_to_text([pa.array(["a,", "a"]), pa.array(["b", ",b"])]).to_pylist()
    assert len(set(tricky)) == 2
    raw = [UUID(int=1).bytes, UUID(int=2).bytes]
    for kind in (pa.binary(16), pa.binary()):
        assert keys_to_text([pa.array(raw, kind)[1:]]).to_pylist() == [raw[1].hex()]
    assert keys_to_text([pa.array(raw, pa.binary(16)).cast(pa.binary(16))]).to_pylist() == [one.hex() for one in raw]
    assert keys_to_text([pa.array([5], pa.timestamp("us", "UTC"))]).to_pylist() == ["5"]


def test_deletes_are_remembered_with_their_dates() -> None:
    """A delete without a date has that of its key in the batch, else the watermark; without any it is not kept."""
    memory = DeletedKeyLog(layout({"id": pa.int64()}), "me", 7)
    part = _part((1, "d", 1, 9), (2, "c", 2, 4), (2, "-", 3, None), (3, "-", 4, None), (4, "c", 5, 9))
    table = upsert(0, {"id": pa.int64()}, ("id",), watermarks={AT: {"a": Watermark(30)}})
    rows = build_deleted_key_rows(fold([part], ["id"]), table, {AT: 0}, memory)
    assert dict(zip(rows["key"].to_pylist(), rows["date"].to_pylist(), strict=True)) == {"1": 9, "2": 4, "3": 30}
    assert set(rows["connector"].to_pylist()) == {"me"}
    unknown = build_deleted_key_rows(fold([part], ["id"]), attrs.evolve(table, watermarks={}), {AT: 0}, memory)
    assert unknown["key"].to_pylist() == ["1", "2"]


@pytest.mark.parametrize(
    ("parent", "number", "left"),
    [
        (None, 1, True),  # the whole history is there, without ours
        (7, 8, False),  # older ones have expired
        (2, 3, True),  # so they have, but ours was newer than this one, which is there
    ],
)
def test_expired_is_not_rolled_back(parent: int | None, number: int, left: bool) -> None:
    """A snapshot that is no ancestor has expired only where older history is missing, and all that is left is newer."""
    assert is_rolled_back(parent, number, 5) is left


class _Line:
    """A table whose branch has these snapshots, newest first: (number, parent, offset our commit stands at, its id)."""

    name = "d.t"

    def __init__(self, *snapshots: tuple[int, int | None, int | None, str]) -> None:
        self._snapshots = snapshots

    def ancestors(self) -> Iterator[Snapshot]:
        for number, parent, offset, commit in self._snapshots:
            told = {} if offset is None else KafkaOffsets("c", {}, {AT: offset}).summary("me", commit)
            facts = {"snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number, "timestamp-ms": 0}
            summary = {"operation": "append", **told}
            yield Snapshot.model_validate({**facts, "manifest-list": "x", "summary": summary})


_OURS = LastCommit(KafkaOffsets("c", {}, {AT: 9}), "b", 6)


@pytest.mark.parametrize(
    ("left", "before", "commit"),
    [
        (_Line((7, 6, None, ""), (6, 5, 9, "b")), _OURS, "b"),
        (_Line((8, 6, 12, "c"), (6, 5, 9, "b")), _OURS, "c"),  # one whose answer was lost
        (_Line((7, 6, None, "")), _OURS, None),  # ours has expired
        (_Line(), LastCommit(), None),
        (_Line((2, 1, None, "")), LastCommit(), None),
        (_Line((2, 1, 9, "b")), attrs.evolve(_OURS, sequence_number=0), "b"),  # made with format version 1
    ],
)
def test_the_newest_commit_is_found(left: _Line, before: LastCommit, commit: str | None) -> None:
    """It is the newest of the connector's that is left; an expired one leaves its offsets."""
    found = find_last_commit(left, "me", before)  # type: ignore[arg-type]
    assert found.commit_id == commit
    assert found.position.offsets[AT] >= 9 if before.position.offsets else not found.position.offsets


@pytest.mark.parametrize(
    ("left", "before"),
    [
        (_Line((4, 3, 5, "a")), _OURS),  # rolled back to an older one of ours, the rest expired
        (_Line((7, 4, None, ""), (4, 3, 5, "a")), _OURS),  # and another wrote since
        (_Line((4, 3, None, "")), _OURS),  # rolled back to another's
        (_Line((7, 4, None, ""), (4, 3, None, "")), _OURS),
        (_Line((1, None, None, "")), _OURS),
        (_Line(), _OURS),
        (_Line(), attrs.evolve(_OURS, commit_id=None)),
        (_Line((4, 3, 5, "a")), attrs.evolve(_OURS, commit_id=None)),
        (_Line((4, 3, 5, "a")), attrs.evolve(_OURS, sequence_number=0)),
    ],
)
def test_a_commit_that_is_gone_stops(left: _Line, before: LastCommit) -> None:
    """A newest commit that was left, and did not expire, is a gap, also where an older one of ours is there."""
    with pytest.raises(GapError, match="rolled back"):
        find_last_commit(left, "me", before)  # type: ignore[arg-type]


class _Java:
    """A snapshot, or an Iterable of them, as Iceberg hands it to the validator."""

    def __init__(
        self,
        name: str = "",
        commit: str = "",
        parent: int | None = None,
        operation: str = "append",
        number: int = 7,
        sequence: int = 9,
    ) -> None:
        self._summary = {CONNECTOR_NAME: name, COMMIT_ID: commit} if name else {}
        self._parent, self._operation, self._number, self._sequence = parent, operation, number, sequence

    def operation(self) -> str:
        return self._operation

    def snapshotId(self) -> int:  # noqa: N802 - Java's name
        return self._number

    def sequenceNumber(self) -> int:  # noqa: N802 - Java's name
        return self._sequence

    def summary(self) -> dict[str, str]:
        return self._summary

    def parentId(self) -> int | None:  # noqa: N802 - Java's name
        return self._parent


class _Iterable:
    def __init__(self, *snapshots: _Java) -> None:
        self._left = list(snapshots)

    def iterator(self) -> _Iterable:
        return self

    def hasNext(self) -> bool:  # noqa: N802 - Java's name
        return bool(self._left)

    def next(self) -> _Java:
        return self._left.pop(0)


@pytest.mark.parametrize(
    ("snapshots", "expected", "allowed"),
    [
        ((_Java("me", "1", 5),), "1", True),
        ((_Java("other", "9", 5), _Java("me", "1", 4)), "1", True),
        ((_Java("me", "2", 5),), "1", False),  # a second sink
        ((_Java("me", "2", 5),), None, False),
        ((), None, True),
        ((), "1", False),  # the table was emptied of all history
        ((_Java("other", "9", 5),), "1", True),  # ours has expired
        ((_Java("other", "9", None),), "1", False),  # nothing has expired: the table was replaced
        ((_Java("other", "9", 5, sequence=3),), "1", False),  # what is left is older than ours: it was rolled back
        ((_Java("other", "9", 5), _Java("other", "9", 5, sequence=3)), "1", False),  # and another wrote since
        ((_Java("", "", 5, "replace"), _Java("me", "1", 4)), "1", False),  # a rewrite that nobody looked at
        ((_Java("other", "9", 5, "replace"), _Java("me", "1", 4)), "1", True),  # one of another connector
        ((_Java("", "", 5), _Java("", "", 5, "replace", 8), _Java("me", "1", 4)), "1", True),  # it was looked at
        ((_Java("", "", 5, "replace"), _Java("", "", 5, "append", 8), _Java("me", "1", 4)), "1", False),
        ((_Java("me", "1", 5), _Java("", "", 5, "replace")), "1", True),  # it was, before our commit
    ],
)
def test_a_commit_lands_only_behind_the_expected_one(
    snapshots: tuple[_Java, ...],
    expected: str | None,
    allowed: bool,
) -> None:
    """Behind this process's newest commit, or where that has expired; never behind another process's, never on less,
    and not on a rewrite of another engine since the snapshot (8) that was looked at.
    """
    before = LastCommit() if expected is None else LastCommit(KafkaOffsets(), expected, 4)
    assert expect_last_commit("me", before, 8)(iterate(_Iterable(*snapshots))) is allowed


def test_a_long_call_is_tried_again() -> None:
    """The time to try again begins with the first failure; none is left with a timeout of 0."""
    calls = list[int]()

    def fails() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise RetriableError("away")
        return len(calls)

    settings = ErrorSettings("all", "t", -1, 0.1, 1, 5_000, 10)
    assert call_with_retries(fails, settings) == 3
    calls.clear()
    with pytest.raises(RetriableError):
        call_with_retries(fails, attrs.evolve(settings, retry_timeout_ms=0))
    assert len(calls) == 1


def test_a_retry_is_logged_once_and_not_begun_anew() -> None:
    """One line per reason; what was tried for as long as one may is not tried again by whoever asked for it."""
    calls = list[int]()

    def fails() -> None:
        calls.append(1)
        raise RetriableError(f"away {len(calls)}")

    settings = ErrorSettings("all", "t", -1, 0.1, 1, 1, 10)
    with structlog.testing.capture_logs() as lines, pytest.raises(TimeOver):
        call_with_retries(lambda: call_with_retries(fails, settings), attrs.evolve(settings, retry_timeout_ms=60_000))
    assert [line["attempt"] for line in lines] == list(range(1, len(calls) + 1))


def test_the_transaction_topic_is_read_too() -> None:
    """Whichever way topics are named, the transaction topic is one more; without it nothing changes."""
    told = {"transaction.topic": "s.transaction"}
    named = kafka({"topics": "a,b", **told})
    assert [named.takes(name) for name in ("a", "b", "s.transaction", "s.other")] == [True, True, True, False]
    for flags in ("", "(?i)"):
        matched = load([], {"topics.regex": rf"{flags}s\.public\..*", **BASE, **told}, {}).kafka
        assert [matched.takes(name) for name in ("s.public.t", "s.transaction", "s.other")] == [True, True, False]
    assert kafka({"topics": "a"}).topics == ("a",)
    with pytest.raises(ConfigError):
        kafka({"topics": "a", "transaction.topic": "no/topic"})
