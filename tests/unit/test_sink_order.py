"""Which changes may be late, what is remembered of deletes, and when a table cannot be gone on with (pure rules)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa
import pytest
import structlog
from pyiceberg.table.snapshots import Snapshot

from connector.errors import ConfigError, RetriableError, TimeOver
from connector.iceberg.commit.ancestry import is_rolled_back
from connector.iceberg.commit.commit import last_of_ours
from connector.iceberg.commit.kafka_position import COMMIT_ID, NAME, Mark, Position
from connector.iceberg.java import each
from connector.runtime.retry import retried
from connector.settings import ErrorSettings, load
from connector.sink.destinations.iceberg.lookups.deleted_keys import Memory, key_text, remembered
from connector.sink.destinations.iceberg.lookups.late_events import set_aside
from connector.sink.fold.watermarks import (
    ALL,
    BEFORE,
    GROWN,
    MAX_SOURCES,
    Seen,
    come,
    grown,
    limits,
    risen,
    suspects,
    together,
)
from connector.sink.fold.winners import NONE, Order
from connector.sink.model.change_rows import Part, fold, last_deletes, pack, unpack
from serde.events.source_positions import Places, unplaced
from tests.unit.sink_plans import layout, upsert
from tests.unit.test_settings_kafka import BASE, kafka

AT = ("t", 0)


def _origin(*names: str) -> pa.DictionaryArray:
    return pa.array(names).dictionary_encode()


def _dates(*values: int | None) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([NONE if value is None else value for value in values], np.int64)


def test_only_what_is_older_than_its_sources_watermark_is_suspect() -> None:
    """The watermark's own date, a newer one and none at all are no suspects; another source has a clock of its own."""
    order, origin = _undated(9, 10, 11, None, 5, 5), _origin("a", "a", "a", "a", "b", "c")

    def marked(known: dict[str, Mark]) -> list[bool]:
        return suspects(order, origin, limits({AT: known}, AT, origin.dictionary.to_pylist())).tolist()

    assert marked({"a": Mark(10), "b": Mark(6)}) == [True, False, False, False, True, False]
    assert not any(marked({}))
    assert marked({ALL: Mark(7)}) == [False, False, False, False, True, True]


def test_positions_make_suspects_where_both_tell_theirs() -> None:
    """Below the watermark's place, but where the date is above its date: transactions may have run side by side."""
    order, origin = _undated(5, 6, 7, None, 5), _origin("a", "a", "a", "a", "a")
    order = attrs.evolve(order, place=_places((1, 5), (1, 7), (1, 5), (1, 5), None))
    marks = [Mark(6, (6, 0, 0))]
    assert suspects(order, origin, marks).tolist() == [True, False, False, True, True]
    assert suspects(order, origin, [Mark(NONE, (6, 0, 0))]).tolist() == [True, False, True, True, False]


def test_a_topic_that_has_grown_is_read_by_all_its_partitions() -> None:
    """Until a source has written to a new partition; from then on what is older than that is a suspect anywhere."""
    known = {AT: {"a": Mark(4)}, ("t", 1): {"a": Mark(9)}, ("u", 0): {"a": Mark(20)}}
    assert limits(known, AT, ["a"]) == [Mark(4)]
    fresh = grown(known, {"t": 2, "u": 1}, {"t": 3, "u": 1})
    assert fresh == {("t", GROWN): {BEFORE: Mark(2)}}
    assert limits({**known, **fresh}, AT, ["a", "b"]) == [Mark(9), Mark()]
    known = {**known, **fresh, ("t", 2): {"a": Mark(12)}}
    settled = grown(known, {"t": 3, "u": 1}, {"t": 3, "u": 1})
    assert settled == {("t", GROWN): {BEFORE: Mark(2), "a": Mark(12)}}
    later = {**known, **settled, ("t", 2): {"a": Mark(30)}}
    assert limits(later, AT, ["a"]) == [Mark(12)], "what came after the growth is no suspect"
    assert grown(later, {"t": 3}, {"t": 3}) == {}
    assert grown({}, {}, {"t": 3}) == {}, "a topic that is read for the first time has not grown"


def test_watermarks_only_rise() -> None:
    """Each source's greatest date counts, over tasks and batches; what is late or undated moves nothing."""
    assert come(_undated(3, 9, None, 4), _origin("a", "a", "b", "c")) == {"a": Mark(9), "b": Mark(), "c": Mark(4)}
    assert come(_undated(None), _origin("a")) == {"a": Mark()}, "that there is one is known too"
    placed = attrs.evolve(_undated(3, 9, 4), place=_places((1, 7, 1), (1, 7, 3), (1, 6, 9)))
    assert come(placed, _origin("a", "a", "a")) == {"a": Mark(9, (7, 3, 0))}
    seen = together([Seen(0, AT, {"a": Mark(9)}), Seen(0, AT, {"a": Mark(3), "c": Mark(4)}, 8), Seen(1, AT)])
    assert seen == (Seen(0, AT, {"a": Mark(9), "c": Mark(4)}, 8), Seen(1, AT))
    assert risen({AT: {"a": Mark(20), "b": Mark(1)}}, seen[:1]) == {AT: {"a": Mark(20), "b": Mark(1), "c": Mark(4)}}
    assert risen({AT: {"a": Mark(20), "c": Mark(7)}}, seen[:1]) == {}


def test_very_many_sources_share_one_watermark() -> None:
    """The summary of a commit stays small: beyond a number of sources there is one watermark, the greatest."""
    many = {f"s{number}": Mark(number, (number,)) for number in range(MAX_SOURCES + 1)}
    assert risen({}, [Seen(0, AT, many)]) == {AT: {ALL: Mark(MAX_SOURCES)}}
    assert risen({AT: {ALL: Mark(500)}}, [Seen(0, AT, {"new": Mark(700)})]) == {AT: {ALL: Mark(700)}}


def test_a_position_travels_as_it_is() -> None:
    """Watermarks, places behind deletes, last transaction and truncate: back from offsets table and summaries."""
    marks = {"a.b": Mark(7), "b": Mark(), "c": Mark(NONE, (1, 2, 3)), "d": Mark(8, (), 9)}
    position = Position("c", {"t": "i"}, {AT: 4}, {AT: marks}, {AT: 4}, "77", 1_700_000_000, (5, 1, 2, 3))
    assert Position.parse(position.json()) == position
    assert Position.of_summary(position.summary("n", "id"), "n") == position
    before = Position.parse('{"cluster-id":"c","topic-ids":{},"offsets":{},"watermarks":{"t":{"0":{"a.b":7}}}}')
    assert before.watermarks == {AT: {"a.b": Mark(7)}}, "as they were stored before places were"
    plain = Position("c", {"t": "i"}, {AT: 4})
    assert "icebridge.watermarks" not in plain.summary("n", "id")
    assert position.advanced(Position("c", {}, {AT: 5})).after_delete == {}
    assert position.only(["other"]).watermarks == {}


def _undated(*dates: int | None) -> Order:
    count, known = len(dates), _dates(*dates)
    where = np.zeros(count, np.int64), np.arange(count)
    return Order(*where, known, known, unplaced(count), np.full(count, ord("u"), np.uint8))


def _places(*told: tuple[int, ...] | None) -> Places:
    places = unplaced(len(told), 1)
    for at, place in enumerate(told):
        places[at, : len(place or ())] = place or ()
    return places


def _part(*changes: tuple[int, str, int, int | None], suspect: bool = False) -> Part:
    """Changes as (key, operation, offset, date); `-` is a tombstone."""
    keys, ops, offsets, dates = zip(*changes, strict=True)
    codes = np.array([0 if op == "-" else ord(op) for op in ops], np.uint8)
    known = _dates(*dates)
    order = Order(np.zeros(len(keys), np.int64), np.array(offsets), known, known, unplaced(len(keys)), codes)
    rows = pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], ["id"])
    deleted = np.isin(codes, (0, ord("d")))
    return Part(rows, order, deleted, ~deleted, np.full(len(keys), suspect))


def test_a_tombstone_has_the_date_of_the_delete_before_it() -> None:
    """A tombstone behind its delete stands for it wherever tasks are cut; a lone one deletes."""
    whole = fold([_part((1, "c", 1, 9), (1, "d", 2, 5), (1, "-", 3, None))], ["id"])
    assert whole.winners.tolist() == [0]
    ended = fold([_part((1, "c", 1, 4), (1, "d", 2, 5), (1, "-", 3, None))], ["id"])
    assert ended.winners.tolist() == [1]
    first = _part((1, "c", 1, 9), (1, "d", 2, 5))
    assert last_deletes([first]).tolist() == [1]
    assert last_deletes([_part((1, "-", 3, None))]).tolist() == []
    lone = fold([_part((1, "c", 1, 9)), _part((1, "-", 3, None))], ["id"])
    assert lone.winners.tolist() == [1]


def test_keys_whose_winner_is_a_suspect_wait_with_all_their_changes() -> None:
    """The other keys go on; a key whose newest change is no suspect does not wait."""
    old, new = _part((1, "u", 1, 3), (2, "u", 2, 3), (1, "u", 3, 4), suspect=True), _part((2, "u", 9, 8))
    rest, aside = set_aside(fold([old, new], ["id"]), ("id",))
    assert rest is not None and aside is not None
    assert [rest.parts[0].rows.column("id")[int(i)].as_py() for i in rest.winners] == [2]
    assert (aside.rows.column("id").to_pylist(), aside.suspect.tolist()) == ([1, 1], [False, True])
    assert set_aside(fold([new], ["id"]), ("id",))[1] is None
    assert set_aside(fold([old], ["id"]), ("id",))[0] is None
    again = unpack(pack(aside), pa.schema([("id", pa.int64())]))
    assert again.suspect.tolist() == [False, True]


def test_a_key_is_one_text() -> None:
    """Equal keys have equal texts, also after a column was widened; different ones never."""
    narrow, wide = (key_text([pa.array([1, 2], kind), pa.array(["a", "b"])]) for kind in (pa.int32(), pa.int64()))
    assert narrow.to_pylist() == wide.to_pylist() == ["1,a", "2,b"]
    tricky = key_text([pa.array(["a,", "a"]), pa.array(["b", ",b"])]).to_pylist()
    assert len(set(tricky)) == 2
    raw = [UUID(int=1).bytes, UUID(int=2).bytes]
    for kind in (pa.binary(16), pa.binary()):
        assert key_text([pa.array(raw, kind)[1:]]).to_pylist() == [raw[1].hex()]
    assert key_text([pa.array(raw, pa.binary(16)).cast(pa.binary(16))]).to_pylist() == [one.hex() for one in raw]
    assert key_text([pa.array([5], pa.timestamp("us", "UTC"))]).to_pylist() == ["5"]


def test_deletes_are_remembered_with_their_dates() -> None:
    """A delete without a date has that of its key in the batch, else the watermark; without any it is not kept."""
    memory = Memory(layout({"id": pa.int64()}), "me", 7)
    part = _part((1, "d", 1, 9), (2, "c", 2, 4), (2, "-", 3, None), (3, "-", 4, None), (4, "c", 5, 9))
    table = upsert(0, {"id": pa.int64()}, ("id",), watermarks={AT: {"a": Mark(30)}})
    rows = remembered(fold([part], ["id"]), table, {AT: 0}, memory)
    assert dict(zip(rows["key"].to_pylist(), rows["date"].to_pylist(), strict=True)) == {"1": 9, "2": 4, "3": 30}
    assert set(rows["connector"].to_pylist()) == {"me"}
    unknown = remembered(fold([part], ["id"]), attrs.evolve(table, watermarks={}), {AT: 0}, memory)
    assert unknown["key"].to_pylist() == ["1", "2"]


def _snapshot(number: int, parent: int | None) -> Snapshot:
    facts = {"snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number, "timestamp-ms": 0}
    return Snapshot.model_validate({**facts, "manifest-list": "x"})


@pytest.mark.parametrize(
    ("ancestors", "left"),
    [
        ([], True),  # nothing is there
        ([_snapshot(2, 1), _snapshot(1, None)], True),  # the whole history is there, without ours
        ([_snapshot(9, 8), _snapshot(8, 7)], False),  # older ones have expired
        ([_snapshot(3, 2)], True),  # so they have, but ours was newer than all that is there
    ],
)
def test_expired_is_not_rolled_back(ancestors: list[Snapshot], left: bool) -> None:
    """A snapshot that is no ancestor has expired only where older history is missing and newer history is there."""
    assert is_rolled_back(ancestors, 5) is left


class _Java:
    """A snapshot, or an Iterable of them, as Iceberg hands it to the validator."""

    def __init__(self, name: str = "", commit: str = "", parent: int | None = None) -> None:
        self._summary, self._parent = {NAME: name, COMMIT_ID: commit}, parent

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
    ],
)
def test_a_commit_lands_only_behind_the_expected_one(
    snapshots: tuple[_Java, ...],
    expected: str | None,
    allowed: bool,
) -> None:
    """Behind this process's newest commit, or where that has expired; never behind another process's, never on less."""
    assert last_of_ours("me", expected)(each(_Iterable(*snapshots))) is allowed


def test_a_long_call_is_tried_again() -> None:
    """The time to try again begins with the first failure; none is left with a timeout of 0."""
    calls = list[int]()

    def fails() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise RetriableError("away")
        return len(calls)

    settings = ErrorSettings("all", "t", -1, 0.1, 1, 5_000, 10)
    assert retried(fails, settings) == 3
    calls.clear()
    with pytest.raises(RetriableError):
        retried(fails, attrs.evolve(settings, retry_timeout_ms=0))
    assert len(calls) == 1


def test_a_retry_is_logged_once_and_not_begun_anew() -> None:
    """One line per retry; what was tried for as long as one may is not tried again by whoever asked for it."""
    calls = list[int]()

    def fails() -> None:
        calls.append(1)
        raise RetriableError("away")

    settings = ErrorSettings("all", "t", -1, 0.1, 1, 1, 10)
    with structlog.testing.capture_logs() as lines, pytest.raises(TimeOver):
        retried(lambda: retried(fails, settings), attrs.evolve(settings, retry_timeout_ms=60_000))
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
