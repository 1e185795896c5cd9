"""Which changes may be late, what is remembered of deletes, and when a table cannot be gone on with (pure rules)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa
import pytest

from connector.errors import ConfigError
from connector.iceberg.commit.kafka_offsets import (
    ALL_SOURCES,
    MAX_TRUNCATES,
    KafkaOffsets,
    LastTruncate,
    Watermark,
    find_sources_of_others,
)
from connector.settings import load
from connector.sink.destinations.deleted_keys import DeletedKeyLog, build_deleted_key_rows, keys_to_text
from connector.sink.fold.fold import find_last_deletes, find_rows_to_keep, fold
from connector.sink.fold.grown_topics import PARTITIONS_BEFORE, find_unmeasured_partitions, track_grown_topics
from connector.sink.fold.late_events import split_late_candidates
from connector.sink.fold.watermarks import (
    GROWN_PARTITION,
    MAX_SOURCES,
    advance_watermarks,
    find_latest_by_source,
    find_limits,
    mark_late_candidates,
    merge_progress,
)
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from connector.sink.model.result import SourceProgress
from serde.events.kinds.operations import TOMBSTONE
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


def test_a_change_of_the_watermarks_transaction_may_be_late() -> None:
    """Changes of one transaction have one date: the smaller place tells that this one comes again."""
    order = attrs.evolve(_undated(6, 6, 6), place=_places((1, 5), (1, 6), (1, 7)))
    marks = [Watermark(6, (6, 0, 0))]
    assert mark_late_candidates(order, _origin("a", "a", "a"), marks).tolist() == [True, False, False]


def test_each_source_has_its_own_limit_for_places() -> None:
    """Places of one log say nothing of another's, however the two are mixed in a partition."""
    order = attrs.evolve(_undated(None, None, None, None), place=_places((1, 5), (2, 5), (1, 9), (2, 9)))
    marks = [Watermark(NO_VALUE, (7, 0, 0)), Watermark(NO_VALUE, (3, 0, 0))]
    origin = _origin("a", "b", "a", "b")
    assert mark_late_candidates(order, origin, marks).tolist() == [True, False, False, False]
    assert mark_late_candidates(order, origin, marks[::-1]).tolist() == [False, True, False, False]
    assert mark_late_candidates(order, origin, [marks[0], Watermark()]).tolist() == [True, False, False, False]


def _track(known: Any, before: Any, read: Any, ends: Any) -> Any:
    return track_grown_topics(known, before, KafkaOffsets(offsets=read), ends)


def test_a_topic_that_has_grown_is_read_by_all_its_partitions() -> None:
    """Until all is read that a source wrote before its keys moved; from then on what is older is a suspect anywhere."""
    known = {AT: {"a": Watermark(4)}, ("t", 1): {"a": Watermark(9)}, ("u", 0): {"a": Watermark(20)}}
    assert find_limits(known, AT, ["a"]) == [Watermark(4)]
    assert find_limits(known, ("t", 2), ["a"]) == [Watermark()]
    assert find_limits(known, ("t", 2), ["a", "b"], any_partition=True) == [Watermark(9), Watermark()]
    assert find_limits(known, AT, ["a"], any_partition=True) == [Watermark(9)], "keys move to old partitions too"
    grown = ("t", GROWN_PARTITION)
    read = {AT: 5, ("t", 1): 7, ("t", 2): 0, ("u", 0): 3}
    fresh = _track(known, {"t": 2, "u": 1}, read, {})
    assert fresh == {grown: {PARTITIONS_BEFORE: Watermark(2)}}
    assert find_limits({**known, **fresh}, AT, ["a", "b"]) == [Watermark(9), Watermark()]
    assert find_unmeasured_partitions({**known, **fresh}) == set(), "nobody has written to the new partition"
    known = {**known, **fresh, ("t", 2): {"a": Watermark(7)}}
    asked = _track(known, {"t": 3, "u": 1}, {**read, ("t", 2): 1}, {})
    assert asked == {grown: {PARTITIONS_BEFORE: Watermark(2), PARTITIONS_BEFORE + "a": Watermark()}}
    assert find_unmeasured_partitions({**known, **asked}) == {AT, ("t", 1)}
    known = {**known, **asked}
    ends = {AT: 6, ("t", 1): 9}
    waiting = _track(known, {"t": 3}, {**read, AT: 6}, ends)
    assert waiting == {grown: {PARTITIONS_BEFORE: Watermark(2), PARTITIONS_BEFORE + "a": Watermark(NO_VALUE, (6, 9))}}
    known = {**known, **waiting, AT: {"a": Watermark(15)}}
    assert find_unmeasured_partitions(known) == set(), "the ends are known"
    assert find_limits(known, ("t", 2), ["a"]) == [Watermark(15)]
    assert _track(known, {"t": 3}, {**read, AT: 6, ("t", 1): 8}, {}) == {}
    settled = _track(known, {"t": 3}, {**read, AT: 6, ("t", 1): 9}, {})
    assert settled == {grown: {PARTITIONS_BEFORE: Watermark(2), "a": Watermark(15)}}
    later = {**known, **settled, ("t", 2): {"a": Watermark(30)}}
    assert find_limits(later, AT, ["a"]) == [Watermark(15)], "what came after the growth is no suspect"
    assert find_limits(later, AT, ["a"], any_partition=True) == [Watermark(30)], "it has grown once more since"
    assert _track(later, {"t": 3}, {**read, AT: 6, ("t", 1): 9}, {}) == {}


def test_each_source_of_a_grown_topic_has_a_limit_of_its_own() -> None:
    """A source that has not written to a new partition waits for nothing; one that had its limit keeps it."""
    grown = ("t", GROWN_PARTITION)
    limits = {PARTITIONS_BEFORE: Watermark(1), "a": Watermark(3), PARTITIONS_BEFORE + "b": Watermark()}
    known = {grown: limits, AT: {"a": Watermark(8), "b": Watermark(5), "c": Watermark(2)}}
    known[("t", 1)] = {"a": Watermark(9), "b": Watermark(4), "c": Watermark()}
    assert find_unmeasured_partitions(known) == {AT}
    settled = _track(known, {"t": 2}, {AT: 4, ("t", 1): 2}, {AT: 4})
    assert settled == {grown: {PARTITIONS_BEFORE: Watermark(1), "a": Watermark(3), "b": Watermark(5)}}
    assert _track(known, {"t": 2}, {AT: 4, ("t", 1): 2}, {("t", 1): 2}) == {}, "the ends of other logs"


def test_growth_is_noticed_per_topic() -> None:
    """Partitions that are added count whatever other topics do; a topic that is read for the first time has none."""
    read = {("u", 0): 1, ("u", 1): 0, ("v", 0): 1, ("t", 0): 1, ("t", 1): 1, ("w", 0): 0}
    both = _track({}, {"t": 2, "u": 1}, read, {})
    assert both == {("u", GROWN_PARTITION): {PARTITIONS_BEFORE: Watermark(1)}}
    both = _track({}, {"t": 2, "u": 2}, {**read, ("t", 2): 0}, {})
    assert both == {("t", GROWN_PARTITION): {PARTITIONS_BEFORE: Watermark(2)}}
    assert _track({}, {}, read, {}) == {}


def test_watermarks_only_rise() -> None:
    """Each source's greatest date counts, over tasks and batches; what is late or undated moves nothing."""
    assert find_latest_by_source(_undated(3, 9, None, 4), _origin("a", "a", "b", "c")) == {
        "a": Watermark(9),
        "b": Watermark(),
        "c": Watermark(4),
    }
    assert find_latest_by_source(_undated(None), _origin("a")) == {"a": Watermark()}, "that there is one is known too"
    without = pa.DictionaryArray.from_arrays(pa.array([0, 2, 2]), pa.array(["a", "b", "c"]))
    assert find_latest_by_source(_undated(3, 9, 4), without) == {"a": Watermark(3), "c": Watermark(9)}
    versions = np.array([5, 7, 6], np.int64)
    assert find_latest_by_source(_undated(3, 9, 4), _origin("a", "b", "a"), versions) == {
        "a": Watermark(4, (), 7),
        "b": Watermark(9, (), 8),
    }
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
    most = {f"s{number}": Watermark(number, (number,), -number) for number in range(1, MAX_SOURCES + 1)}
    assert advance_watermarks({}, [SourceProgress(0, AT, most)]) == {AT: most}
    many = {**most, "s0": Watermark(0, (0,), 7)}
    assert advance_watermarks({}, [SourceProgress(0, AT, many)]) == {AT: {ALL_SOURCES: Watermark(MAX_SOURCES, (), 7)}}
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
    many = KafkaOffsets(truncates={str(n): LastTruncate(MAX_TRUNCATES - n) for n in range(MAX_TRUNCATES)})
    assert set(many.advance(stood).truncates) == {*map(str, range(MAX_TRUNCATES - 2)), "a", "b"}
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
    another = KafkaOffsets(watermarks={AT: {"s.d.v": Watermark(1)}}).summary("another", "3")
    assert find_sources_of_others([*summaries, another], "me") == {"s.d.t", "s.d.u", "s.d.v"}
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
    codes = np.array([ord(op) for op in ops], np.uint8)
    known = _dates(*dates)
    order = ChangeOrder(
        np.zeros(len(keys), np.int64), np.array(offsets), known, known, unknown_positions(len(keys)), codes
    )
    rows = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], ["id"])
    deleted = np.isin(codes, (TOMBSTONE, ord("d")))
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
    ends_bare, begins_bare = _part((1, "d", 2, 5), (1, "-", 3, None)), _part((2, "-", 4, None), (1, "d", 5, 7))
    assert find_last_deletes([ends_bare, begins_bare, _part((1, "u", 6, 8))]).tolist() == [3]
    lone = fold([_part((1, "c", 1, 9)), _part((1, "-", 3, None))], ["id"])
    assert lone.winners.tolist() == [1]


def test_a_fold_hands_on_the_row_of_its_tombstone_and_the_greatest_number() -> None:
    """A tombstone that wins stands beside the row that it marks, and with versions the greatest dedup value stays."""
    marked = fold([_part((1, "u", 1, None), (1, "-", 2, None))], ["id"])
    assert find_rows_to_keep(marked, ["id"]).tolist() == [0, 1]
    assert find_rows_to_keep(attrs.evolve(marked, decision=None), ["id"]).tolist() == [0, 1]
    part = _part((1, "u", 1, 5), (1, "u", 2, 8), (1, "u", 3, 9))
    dates = _dates(None, None, None)
    part = attrs.evolve(part, order=attrs.evolve(part.order, date=dates, dedup=_dates(5, 9, 8)))
    folded = fold([part], ["id"])
    assert find_rows_to_keep(folded, ["id"]).tolist() == [2]
    assert find_rows_to_keep(folded, ["id"], numbered=True).tolist() == [1, 2]
    assert find_rows_to_keep(folded, ["id"], np.array([0])).tolist() == [0, 2]


def test_keys_whose_winner_is_a_suspect_wait_with_all_their_changes() -> None:
    """The other keys go on; a key whose newest change is no suspect does not wait."""
    old, new = _part((1, "u", 1, 3), (2, "u", 2, 3), (1, "u", 3, 4), suspect=True), _part((2, "u", 9, 8))
    rest, aside = split_late_candidates(fold([old, new], ["id"]), ("id",))
    assert rest is not None and aside is not None
    assert [rest.parts[0].rows.column("id")[int(i)].as_py() for i in rest.winners] == [2]
    assert (aside.rows.column("id").to_pylist(), aside.candidate.tolist()) == ([1, 1], [False, True])
    assert aside.suspect.tolist() == [True, True]
    assert split_late_candidates(fold([new], ["id"]), ("id",))[1] is None
    assert split_late_candidates(fold([old], ["id"]), ("id",))[0] is None
    again = unpack(pack(aside), pa.schema([("id", pa.int64())]))
    assert (again.candidate.tolist(), again.suspect.tolist()) == ([False, True], [True, True])


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
