"""Dead letters put through again: which of them later records have overtaken (pure rules of the replay)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pytest

from connector.cli.dlq import _to_text, _with_repaired
from connector.errors import FatalError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets, LastTruncate
from connector.kafka.dlq.producer import (
    HEADER_PREFIX,
    OMITTED_HEADER,
    OMITTED_HEADERS_HEADER,
    OMITTED_KEY_HEADER,
    DeadLetterMessage,
    Headers,
)
from connector.kafka.dlq.reader import REPLAYED_HEADER, DeadLetterRecord, _parse_dead_letter, _split_headers
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import EventSettings
from connector.sink import replay as replay_module
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode
from connector.sink.microbatch.processor import BatchProcessor
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.destination import ReplayOutcome, ReplayRows
from connector.sink.model.plan import BatchPlan
from connector.sink.replay import Replayer, _DecodedLetters, _group_by_partition, mark_superseded, select_rows
from serde.events.kinds.header_names import CONNECTOR_HEADER
from tests.unit.local_sink import LocalTables, _to_run, local_sink
from tests.unit.sink_plans import DATED, append, plan, run, upsert

COLUMNS = {"id": pa.int64(), "v": pa.int64()}


def _part(*ids: int | None, first: int = 100) -> ChangeBatch:
    values = [{"id": i, "v": 1} if i is not None else None for i in ids]
    records = run(*values, keys=[{"id": i or 9} for i in ids])
    records.offset[:] += first - 100
    outcome = decode(records, plan(upsert(0, COLUMNS, ("id",))))
    (part, *more) = outcome.parts
    assert not more
    return part


def test_a_later_record_of_the_same_key_overtakes() -> None:
    """Only a later record about the same key counts: not an earlier one, not one of another key."""
    letters = _part(1, 2, 3, first=100)  # offsets 100, 101, 102
    assert mark_superseded(letters, [_part(2, 4, first=200)], ["id"]).tolist() == [False, True, False]
    assert mark_superseded(letters, [_part(3, first=50)], ["id"]).tolist() == [False, False, False]
    assert mark_superseded(letters, [_part(1, first=150), _part(3, first=300)], ["id"]).tolist() == [True, False, True]
    assert mark_superseded(letters, [], ["id"]).tolist() == [False, False, False]


def test_a_later_delete_overtakes() -> None:
    """A key that was deleted later stays deleted."""
    assert mark_superseded(_part(9), [_part(None, first=200)], ["id"]).tolist() == [True]


def test_what_is_kept_keeps_its_letters() -> None:
    """Rows and their letters are parted together; without a mask all are kept (tables that are appended to)."""
    part = _part(1, 2)
    ((kept, ids),), gone = select_rows(
        [(part, ["0-1", "0-2"])], [mark_superseded(part, [_part(1, first=300)], ["id"]) == 0]
    )
    assert (kept.rows.column("id").to_pylist(), ids, gone) == ([2], ["0-2"], {"0-1"})
    assert select_rows([(part, ["0-1", "0-2"])], None) == ([(part, ["0-1", "0-2"])], set())


def _event(table: str, number: int, op: str = "c") -> bytes:
    source = {"name": "srv", "db": "db", "schema": "public", "table": table, "ts_ns": number * 1000 + 1}
    after: dict[str, Any] | None = {"id": number, "name": table} if op == "c" else None
    return orjson.dumps({"before": None, "after": after, "source": source, "op": op})


class _Since(Replayer):
    """A replay of letters that begin a partition, with these records after them."""

    after: tuple[bytes, ...] = ()

    def _decode_later(self, plan: BatchPlan, at: TopicPartition, start: int, end: int) -> list[DecodedRecords]:
        rows = [orjson.loads(event)["after"] for event in self.after]
        records = run(*self.after, keys=[row and {"id": row["id"]} for row in rows], topic=at[0])
        records.offset[:] += start
        return [decode(records, plan)]


def _kept(letters: list[bytes | None], after: list[bytes], topic: str = "t", **table: Any) -> list[int]:
    """Which of the letters still stand, by their numbers."""
    keys = [{"id": number + 1} for number in range(len(letters))]
    target = upsert(0, DATED, ("id",), dated=True, **table)
    whole = plan(target, routes={topic: 0}, ranks={(topic, 0): 0})
    records = run(*letters, keys=keys, topic=topic)
    outcome = decode(records, whole)
    batches = BatchProcessor.__new__(BatchProcessor)
    batches._targets = cast(
        "Any",
        SimpleNamespace(find=lambda topics: dict.fromkeys(topics, "d.t"), find_other_sources=lambda _: frozenset()),
    )
    batches.position = cast("Any", SimpleNamespace(offsets={(topic, 0): 300}))
    settings = SimpleNamespace(table=SimpleNamespace(truncate=True))
    replayer = _Since(*(cast("Any", given) for given in (settings, None, batches, None)))
    replayer.after = tuple(after)
    parts = [(part, [""] * len(part)) for part in outcome.parts]
    decoded = _DecodedLetters({(topic, 0): ([], records)}, whole, ["d.t"], {(topic, 0): outcome})
    masks = replayer._mark_standing(decoded, target, "d.t", parts)
    stand = [part.order.offset[mask] for (part, _), mask in zip(parts, masks, strict=True)]
    return sorted(int(offset) - 99 for offset in np.concatenate(stand))


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        ([], [1, 2]),
        ([_event("x", 9, "t")], [2]),
        ([_event("y", 9, "t")], [1]),
        ([_event("z", 9, "t")], [1, 2]),
        ([_event("x", 9, "t"), _event("y", 9, "t")], []),
        ([_event("y", 1), _event("z", 9, "t")], [2]),
    ],
)
def test_only_a_truncate_of_its_own_source_overtakes(after: list[bytes], kept: list[int]) -> None:
    """In a topic of several sources a later truncate takes letters of its source, and no others."""
    assert _kept([_event("x", 1), _event("y", 2)], after) == kept


def test_a_truncate_of_another_table_overtakes_nothing() -> None:
    """A source that the letters are not of may have a table of its own."""
    assert _kept([_event("x", 1)], [_event("y", 8), _event("y", 9, "t")]) == [1]


def test_a_truncate_of_the_only_source_overtakes_all() -> None:
    """Also a record without value, which tells no source: the rows of a topic of one table are that table's."""
    assert _kept([_event("x", 1), None], [_event("x", 9, "t")], "srv.public.x") == []


def test_a_truncate_in_another_partition_overtakes_what_is_older() -> None:
    """The table tells of the last truncate of each source; those of other sources stay, and what came later."""
    letters: list[bytes | None] = [_event("x", 1), _event("x", 5)]
    assert _kept(letters, [], "srv.public.x") == [1, 2]
    cuts = {"srv.db.public.x": LastTruncate(3_001)}
    assert _kept(letters, [], "srv.public.x", truncates=cuts) == [2]
    assert _kept([*letters, _event("y", 2)], [], truncates=cuts) == [2, 3]
    assert _kept([*letters, _event("y", 2)], [], truncates={**cuts, "srv.db.public.y": LastTruncate(2_002)}) == [2]


def _read_letter(message: Any) -> DeadLetterRecord | None:
    return _parse_dead_letter(message, *_split_headers(message))


def _letter_of(key: bytes | None, value: bytes | None, own: Headers, size: int = 0) -> DeadLetterRecord | None:
    """The letter of a record, as it is read again; parts of it are left out so many times."""
    reasons = tuple((f"{HEADER_PREFIX}{name}", text) for name, text in _PLACE.items())
    sent = DeadLetterMessage("t", key, value, own, reasons)
    for _ in range(size):
        sent = sent.shorten() or sent
    return _read_letter(
        SimpleNamespace(
            headers=lambda: [*sent.headers, *sent.reasons],
            key=lambda: sent.key,
            value=lambda: sent.value,
            partition=lambda: 0,
            offset=lambda: 5,
        )
    )


def test_a_null_key_is_not_left_out() -> None:
    """Of a letter whose headers were left out its key is known; only one that was left out too is not."""
    headers = (("h", b"1"),)
    for key, cuts, told in ((None, 2, "null"), (b"k", 2, "k"), (b"k", 3, "left out, as it was too large")):
        letter = _letter_of(key, b"v", headers, cuts)
        assert letter is not None and letter.omitted and letter.shortened
        assert _to_text(letter.key, omitted=letter.key_omitted).startswith(told)


OTHERS = [(name, b"9") for name in (OMITTED_HEADER, OMITTED_HEADERS_HEADER, OMITTED_KEY_HEADER)]
WAS = [(f"{HEADER_PREFIX}{name}", b"9") for name in ("topic", "partition", "offset", "stage")]


@pytest.mark.parametrize("own", [[*WAS, *OTHERS], [(REPLAYED_HEADER, b"0-1")], [(REPLAYED_HEADER, b"0-1"), *OTHERS]])
def test_a_letter_of_what_was_a_letter_before_is_whole(own: list[tuple[str, bytes | None]]) -> None:
    """What another connector wrote of a record is the record's: it was not shortened here, nor put through."""
    letter = _letter_of(None, None, tuple(own))
    assert letter is not None and not (letter.omitted or letter.shortened or letter.key_omitted)
    assert (letter.topic, letter.offset, letter.stage) == (_PLACE["topic"].decode(), 100, "")
    assert letter.headers == tuple(own)


def test_letters_keep_the_headers_of_their_records() -> None:
    """A letter has the headers that its record came with, and not those that tell why it is dead."""
    given = [("id", b"e-1"), (CONNECTOR_HEADER, b"mariadb"), ("id", b"second"), ("empty", None)]
    reasons = [(f"{HEADER_PREFIX}{name}", text) for name, text in _PLACE.items()]
    message = SimpleNamespace(
        headers=lambda: [*given, *reasons], key=lambda: b"1", value=lambda: b"{}", partition=lambda: 0, offset=lambda: 5
    )
    letter = _read_letter(message)
    assert letter is not None and letter.headers == tuple(given)
    (((own, records),),) = (_group_by_partition([letter]).values(),)
    assert own == [letter] and records.connector == "mariadb"
    found = {name: column.to_pylist() for name, column in records.with_named_headers(("id",)).headers.items()}
    assert found == {"id": [b"e-1"], CONNECTOR_HEADER: [b"mariadb"], "empty": [None]}


@pytest.mark.parametrize(("value", "omitted"), [(None, True), (b"{}", False)])
def test_a_value_that_was_left_out_is_no_null(value: bytes | None, omitted: bool) -> None:
    """A letter without its value, which was too large, is known as such: it is no tombstone."""
    reasons = [*((f"{HEADER_PREFIX}{name}", text) for name, text in _PLACE.items()), (OMITTED_HEADER, b"2000000")]
    message = SimpleNamespace(
        headers=lambda: reasons, key=lambda: b"1", value=lambda: value, partition=lambda: 0, offset=lambda: 5
    )
    letter = _read_letter(message)
    assert letter is not None and letter.omitted is omitted


def test_a_letter_without_its_value_is_not_replayed(tmp_path: Path) -> None:
    """It deletes no row, and stays dead with what to do; a value of the user's is put through."""
    letter = DeadLetterRecord("0-5", "t", 0, 100, "", "", b"7", None, omitted=True)
    decoded = list[str]()

    class Stopped(Replayer):
        def _decode(self, runs: Any, *, execute: bool) -> Any:
            decoded.extend(one.id for own, _ in runs.values() for one in own)
            return _DecodedLetters(runs, plan(), [], {})

    batches = SimpleNamespace(position=KafkaOffsets(offsets={("t", 0): 300}))
    target = SimpleNamespace(replay_target=lambda: None)
    replayer = Stopped(cast("Any", None), cast("Any", target), cast("Any", batches), cast("Any", None), [letter])
    report = replayer.replay([letter], execute=True)
    assert (report.done, decoded) == ((), []) and "too large" in report.dead["0-5"]
    (tmp_path / "0-5.value").write_bytes(b"{}")
    repaired = _with_repaired(letter, tmp_path)
    assert (repaired.omitted, _with_repaired(letter, None).omitted) == (False, True)
    replayer.replay([repaired], execute=True)
    assert decoded == ["0-5"]


def test_a_letter_of_a_topic_that_was_made_again_stays_dead() -> None:
    """Its offset says nothing of the topic that has its name now: neither is it put through, nor does it hide a record
    of that topic, and both letters of one place are known."""
    old = DeadLetterRecord("0-5", "t", 0, 100, "", "", b"7", b"{}", topic_id="before")
    new = attrs.evolve(old, id="0-6", topic_id="now")
    batches = SimpleNamespace(position=KafkaOffsets("c", {"t": "now"}, {("t", 0): 300}))
    replayer = Replayer(cast("Any", None), cast("Any", None), cast("Any", batches), cast("Any", None), [old, new])
    assert [replayer._is_of_other_topic(one) for one in (old, new)] == [True, False]
    for unknown in ("", "AAAAAAAAAAAAAAAAAAAAAA"):
        assert not replayer._is_of_other_topic(attrs.evolve(old, topic_id=unknown))
    assert not replayer._is_of_other_topic(attrs.evolve(old, topic_id=""))
    assert old.place != new.place


_PLACE = {"topic": b"outbox.event.order", "partition": b"0", "offset": b"100", "exception.message": b"why"}


def test_a_replayed_outbox_event_has_its_id() -> None:
    """The id of an outbox event is in a header, which a replay has too."""
    texts = dict.fromkeys(("id", "aggregatetype", "aggregateid", "type", "payload"), pa.string())
    letter = DeadLetterRecord("0-5", "t", 0, 100, "", "", b"7", b'{"a":1}', headers=(("id", b"e-1"),))
    (((_, records),),) = (_group_by_partition([letter]).values(),)
    events = EventSettings("auto", "auto", (), "__", outbox_topics="(t)")
    outcome = decode(records, plan(append(0, texts), events=events))
    (row,) = (row for part in outcome.parts for row in part.rows.to_pylist())
    assert (row["id"], row["aggregateid"]) == ("e-1", "7")


def test_letters_that_a_commit_names_are_not_put_through_beside_others(tmp_path: Path) -> None:
    """Letters that the table's commits name stay out, by the dead letter topic too, as another one of its name has such
    letters; and one that a table refuses is not through."""
    sink = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert=false"])
    sink.process(*((("t", 0), None, b'{"id":%d,"__op":"c"}' % key) for key in range(4)))
    letters = [
        DeadLetterRecord(f"0-{n}", "t", 0, n, "", "", None, b'{"id":%d,"__op":"c"}' % n, log_id="now-and-here")
        for n in range(3)
    ]
    put = list[set[str]]()

    def replay(plan: Any, index: int, name: str, parts: ReplayRows, *, execute: bool) -> ReplayOutcome:
        put.append({one for _, ids in parts for one in ids})
        return ReplayOutcome(dead={letters[2].name: "refused"})

    named = {letters[0].name, "0-1@another_"}
    target: Any = SimpleNamespace(find_replayed=lambda _: named, replay=replay)
    destination = cast("Any", SimpleNamespace(replay_target=lambda: target, tables=sink.destination.tables))
    replayer = Replayer(sink.batches._settings, destination, sink.batches, cast("Any", None), letters)
    report = replayer.replay(letters, execute=True)
    assert put == [{"0-1@now-and-", "0-2@now-and-"}]
    assert (report.done, report.overtaken, report.dead) == (("0-0", "0-1"), (), {"0-2": "refused"})
    named.add("0-1")
    replayer.replay(letters, execute=False)
    assert put[1:] == [{"0-2@now-and-"}]


@pytest.mark.parametrize("execute", [True, False])
def test_a_letter_with_a_field_that_its_table_lacks_stops_where_that_is_asked(tmp_path: Path, *, execute: bool) -> None:
    """As a batch does: with `schema.evolution=validate-only` nothing is left out without a word."""
    sink = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert=false", "schema.evolution=validate-only"])
    sink.process(*((("t", 0), None, b'{"id":%d,"__op":"c"}' % key) for key in range(2)))
    letters = [DeadLetterRecord("0-1", "t", 0, 1, "", "", None, b'{"id":1,"more":2,"__op":"c"}')]
    destination = cast("Any", SimpleNamespace(replay_target=lambda: None, tables=sink.destination.tables))
    replayer = Replayer(sink.batches._settings, destination, sink.batches, cast("Any", None), letters)
    with pytest.raises(FatalError, match=r"validate-only: t \(more\); add the columns"):
        replayer.replay(letters, execute=execute)


def test_what_a_table_that_is_ahead_has_overtakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink stopped after the table had its batch, and before its offsets were saved: what came with that batch is
    not read again for this table, so a letter that was put over it would stay.
    """
    sink, at = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert-dedup-column=none"]), ("t", 0)
    events = [(b'{"id":%d}' % key, b'{"id":%d,"v":%d,"__op":"c"}' % (key, n)) for n, key in enumerate((0, 1, 2, 3, 1))]
    sink.process(*((at, *event) for event in events[:4]))
    records = _to_run(at, 0, events)
    monkeypatch.setattr(LocalTables, "plan", _ahead(LocalTables.plan, {at: 5}))
    put = list[set[str]]()

    def replay(plan: Any, index: int, name: str, parts: ReplayRows, *, execute: bool) -> ReplayOutcome:
        put.append({one for _, ids in parts for one in ids})
        return ReplayOutcome()

    def read(_: Any, start: dict[TopicPartition, int], end: dict[TopicPartition, int], count: int) -> Any:
        rows = np.flatnonzero((records.offset >= start[at]) & (records.offset < end[at]))
        return SimpleNamespace(all_records=lambda: [records.only(rows)])

    monkeypatch.setattr(replay_module, "assign_ranges", read)
    target: Any = SimpleNamespace(find_replayed=lambda _: set(), replay=replay)
    destination: Any = SimpleNamespace(replay_target=lambda: target, tables=sink.destination.tables)
    cluster: Any = SimpleNamespace(fetch_beginning_offsets=lambda asked: dict.fromkeys(asked, 0))
    letters = [DeadLetterRecord(f"0-{n}", "t", 0, n, "", "", *events[n]) for n in (1, 2)]
    replayer = Replayer(sink.batches._settings, destination, sink.batches, cluster, letters)
    report = replayer.replay(letters, execute=True)
    assert (report.done, report.overtaken, put) == (("0-2",), ("0-1",), [{"0-2"}])


def _ahead(plan_table: Any, committed: dict[TopicPartition, int]) -> Any:
    """A table's plan that says that the table has more than the sink's own offsets."""
    return lambda *words: attrs.evolve(plan_table(*words), committed=committed)
