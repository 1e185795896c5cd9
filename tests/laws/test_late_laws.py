"""any old part of the stream again, any cut, any crash -> the same table: laws of the watermark.

The sink's own decoding, fold, watermarks and memory of deleted keys; the table is a dict, and the join with it a
look-up. What Spark and Iceberg do in their place: tests/kafka/test_sink_replays.py.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.state.deleted_keys_schema import SOURCE_POSITION_COLUMNS
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings import EventSettings
from connector.sink.destinations.deleted_keys import DeletedKeyLog, build_deleted_key_rows
from connector.sink.destinations.iceberg.write.table_writer import IcebergWriterFactory
from connector.sink.destinations.late_event_tasks import is_older
from connector.sink.destinations.table_position import build_table_position
from connector.sink.fold.fold import fold
from connector.sink.fold.late_events import split_late_candidates
from connector.sink.fold.watermarks import merge_progress
from connector.sink.job.map_task import MapTask
from connector.sink.job.shuffle import unpack
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import SourceProgress
from connector.sink.model.task_output import OutputKind
from serde.events.positions.log_positions import unknown_positions
from tests.harness.rounds import draws
from tests.model import reference
from tests.model.events import CLOCKS, OUTLIVING, Clock, Database, row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.model.source_logs import CONNECTORS, Connector
from tests.unit.sink_plans import DATED, layout, plan, upsert

pytestmark = [pytest.mark.laws, pytest.mark.timeout(900)]

LIFE, PARTITIONS, TOPIC = Life(4, updated=0.4, again=0.0), 2, "late.public.t"
MEMORY = DeletedKeyLog(layout({}), "late", 0)
Cell = tuple[int, Any, bool]
Proof = tuple[int, tuple[int, ...]]
UNPLACED = tuple(unknown_positions(1)[0].tolist())


def _cut(records: Sequence[Any], rng: random.Random, most: int) -> list[Sequence[Any]]:
    """Cut in up to so many places, anywhere."""
    if not records:
        return []
    points = sorted({rng.randrange(len(records) + 1) for _ in range(rng.randint(0, most))} - {0, len(records)})
    return [records[a:b] for a, b in zip([0, *points], [*points, len(records)], strict=True)]


# --- the sink ----------------------------------------------------------------------------------------------------


@attrs.define
class Model:
    """A sink with one table of rows by key: (date, n, whether it is marked deleted), and what is known of deleted keys.

    The date of a row is the one that its columns prove.
    """

    keep: bool
    rng: random.Random
    partitions: int = PARTITIONS
    rows: dict[int, Cell] = attrs.field(factory=dict)
    gone: dict[str, list[Proof]] = attrs.field(factory=dict)
    stored: KafkaOffsets = attrs.field(factory=KafkaOffsets)
    late: int = 0
    tasks_of: Callable[[Sequence[Record], random.Random, int], list[Sequence[Record]]] = _cut

    def batch(self, records: Sequence[Record], start: dict[tuple[str, int], int]) -> None:
        """Take the records from `start` on in; what the table has already is among them after a crash."""
        every = {(TOPIC, number): 0 for number in range(self.partitions)}
        end = {**every, **start, **{(r.topic, r.partition): r.offset + 1 for r in records}}
        known = self.stored.offsets
        table = upsert(
            0,
            DATED,
            ("id",),
            keep_deletes=self.keep,
            tombstones="skip" if self.keep else "delete",
            dated=True,
            buckets=2,
            watermarks=self.stored.watermarks,
            partitions=self.stored.partitions,
            after_delete=self.stored.after_delete,
            committed={at: offset for at, offset in known.items() if offset > start.get(at, 0)},
        )
        ranks = {(TOPIC, number): number for number in range(self.partitions)}
        events = EventSettings("auto", "auto", ("source.ts_ns",), "__")
        job = plan(table, routes={TOPIC: 0}, ranks=ranks, events=events)
        parts, seen = self._mapped(job, records)
        for bucket in sorted(parts):
            self._reduced(parts[bucket], table, job)
        at = build_table_position(job, table, seen, KafkaOffsets("", {}, end))
        self.stored = self.stored.advance(at)

    def _mapped(
        self, job: BatchPlan, records: Sequence[Record]
    ) -> tuple[dict[int, list[ChangeBatch]], tuple[SourceProgress, ...]]:
        """Run map tasks over pieces of each partition."""
        parts: dict[int, list[ChangeBatch]] = {}
        seen: list[SourceProgress] = []
        for number in range(self.partitions):
            lane = [r for r in records if r.partition == number]
            for piece in self.tasks_of(lane, self.rng, 2):
                task = MapTask(job, IcebergWriterFactory())
                made = [*(p for run in _cut(piece, self.rng, 2) for p in task.take([_run(run)])), *task.finish()]
                for parcel in made:
                    if parcel.kind == OutputKind.CHANGES:
                        part = unpack(pa.py_buffer(parcel.payload), job.tables[0].layout.rows)
                        parts.setdefault(parcel.bucket, []).append(part)
                seen += task._progress.values()
        return parts, merge_progress(seen)

    def _reduced(self, parts: list[ChangeBatch], table: TablePlan, job: BatchPlan) -> None:
        rest, aside = split_late_candidates(fold(parts, ("id",)), ("id",))
        if rest is not None:
            self._write(rest, table, job)
        if aside is not None and (standing := self._standing(aside)):
            self._write(fold([standing], ("id",)), table, job)

    def _standing(self, aside: ChangeBatch) -> ChangeBatch | None:
        asked = np.flatnonzero(aside.candidate)
        lost = {_key(aside, at) for at in asked if self._is_older(aside, at)}
        self.late += len(lost)
        keys = aside.rows.column("id").to_pylist()
        keep = np.array([at for at, key in enumerate(keys) if key not in lost], np.int64)
        return aside.take(keep) if len(keep) else None

    def _is_older(self, aside: ChangeBatch, at: np.intp) -> bool:
        key, order = _key(aside, at), aside.order.take(np.array([at]))
        held = [(self.rows[key][0], UNPLACED)] if key in self.rows else []
        held += self.gone.get(str(key), [])
        return any(is_older(order.date, order.place, np.array([date]), np.array([place]))[0] for date, place in held)

    def _write(self, folded: FoldedChanges, table: TablePlan, job: BatchPlan) -> None:
        whole = ChangeBatch.concat(folded.parts)
        for winner, image in zip(folded.winners, folded.images, strict=True):
            key = _key(whole, winner)
            if not whole.deleted[winner]:
                self.rows[key] = (_date(whole, image), _n(whole, image), False)
            elif not self.keep:
                self.rows.pop(key, None)
            elif image >= 0:
                self.rows[key] = (_date(whole, image), _n(whole, image), True)
        if not self.keep:
            for one in build_deleted_key_rows(folded, table, job.ranks, MEMORY).to_pylist():
                place = tuple(one[name] for name in SOURCE_POSITION_COLUMNS)
                self.gone.setdefault(one["key"], []).append((one["date"], place))


def _key(part: ChangeBatch, index: int) -> int:
    return int(part.rows.column("id")[int(index)].as_py())


def _date(part: ChangeBatch, index: int) -> int:
    return int(part.order.date[index])


def _n(part: ChangeBatch, index: int) -> Any:
    return part.rows.column("n")[int(index)].as_py()


def _run(records: Sequence[Record]) -> ConsumerRecords:
    at = (records[0].topic, records[0].partition)
    return ConsumerRecords.of_records(at, [(r.offset, r.key, r.value) for r in records])


# --- streams -----------------------------------------------------------------------------------------------------


def _stream(rng: random.Random) -> tuple[list[Record], list[int]]:
    """A random life of a few keys, and the places behind its transactions."""
    db, ends = Database(TOPIC, PARTITIONS), []
    for _ in range(rng.randint(1, 14)):
        db.transaction(*LIFE.steps(rng, set(db.rows), 4))
        ends.append(len(db.log))
    return db.log, ends


def _with_old_parts(log: list[Record], ends: list[int], rng: random.Random) -> list[Record]:
    """The log with old parts of it again behind some transactions, each from an event on to a transaction's end."""
    out: list[Record] = []
    for start, end in zip([0, *ends], ends, strict=False):
        out += log[start:end]
        for _ in range(rng.choice([0, 0, 1, 2])):
            last = rng.choice([e for e in ends if e <= end])
            first = rng.choice([at for at in range(last) if log[at].value is not None])
            out += log[first:last]
    place = Counter[int]()
    placed = []
    for record in out:
        placed.append(attrs.evolve(record, offset=place[record.partition]))
        place[record.partition] += 1
    return placed


# --- the law -----------------------------------------------------------------------------------------------------


@settings(max_examples=draws(50))
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_old_parts_leave_the_table_as_it_was(seed: int, keep: bool) -> None:
    """Whatever old part comes again, however batches and tasks are cut, whatever crashes repeat: the source's table."""
    rng = random.Random(seed)
    log, ends = _stream(rng)
    records = _with_old_parts(log, ends, rng)
    sink = Model(keep, rng)
    done = 0
    start: dict[tuple[str, int], int] = {}
    for batch in _cut(records, rng, 8):
        after = done + len(batch)
        # A crash before the offsets were saved: the next batch begins where this one did, and the table is ahead.
        for _ in range(1 + (rng.random() < 0.3)):
            sink.batch(records[done:after], start)
        done, start = after, {**start, **{(r.topic, r.partition): r.offset + 1 for r in batch}}
    truth = reference.upsert(log, keep_deletes=keep).rows
    wanted = {dict(k)["id"]: (r["n"], r.get("__deleted") == "true") for k, r in truth.items()}
    assert {key: (n, gone) for key, (_, n, gone) in sink.rows.items()} == wanted


def _restarting(seed: int, clock: Clock | Connector, *, grows: bool) -> tuple[Database, int]:
    """A life with restarts, and how many records there were when partitions were added; else with reads.

    (A read that its key's old partition still holds tells no age.)
    """
    rng = random.Random(seed)
    db = Database(TOPIC, PARTITIONS, clock=clock, rng=random.Random(seed))
    turns = rng.randint(1, 14)
    growth, before = rng.randrange(turns) if grows else turns, None
    for turn in range(turns):
        if turn == growth:
            before = len(db.log)
            db.grow(rng.randint(PARTITIONS + 1, 5))
        db.transaction(*LIFE.steps(rng, set(db.rows), 4))
        if clock in OUTLIVING and rng.random() < 0.2:
            db.fail_over()
        if rng.random() < 0.4 and not grows:
            db.read(rng.randrange(4))
        if rng.random() < 0.3:
            db.again(rng.randrange(len(db.log)))
    return db, len(db.log) if before is None else before


def _by_lanes(records: list[Record], rng: random.Random) -> list[list[Record]]:
    """Batches that take some of what each partition has left, until nothing is."""
    lanes: dict[int, list[Record]] = {}
    for record in records:
        lanes.setdefault(record.partition, []).append(record)
    out = []
    while any(lanes.values()):
        taken = [lane.pop(0) for lane in lanes.values() for _ in range(rng.randint(0, 4)) if lane]
        out += [taken] if taken else []
    return out


def _fed(db: Database, before: int, rng: random.Random, sink: Model) -> None:
    """The sink reads on unevenly; of what was there when the topic grew some may be unread then.

    Something was read: a topic that grew before the sink ever read it looks as if it had always had its partitions
    (docs/decisions/0024-order.md).
    """
    start: dict[tuple[str, int], int] = {}
    early = _by_lanes(db.log[:before], rng)
    early = early[: rng.randint(min(1, len(early)), len(early))]
    done = {id(record) for batch in early for record in batch}
    for batch in [*early, *_by_lanes([r for r in db.log if id(r) not in done], rng)]:
        sink.partitions = PARTITIONS if id(batch[0]) in done else db.partitions
        for _ in range(1 + (rng.random() < 0.3)):
            sink.batch(batch, start)
        start |= {(r.topic, r.partition): r.offset + 1 for r in batch}


def _rows(sink: Model) -> dict[int, Any]:
    return {key: n for key, (_, n, gone) in sink.rows.items() if not gone}


def _truth(db: Database) -> dict[int, Any]:
    return {key: row["n"] for key, row in db.rows.items()}


@settings(max_examples=draws(40))
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([*CLOCKS, *CONNECTORS]))
def test_restarts_and_reads_end_in_the_sources_table(seed: int, keep: bool, clock: Clock | Connector) -> None:
    """Whatever a source's clock, whenever it restarts and reads rows, however batches and tasks are cut."""
    db, before = _restarting(seed, clock, grows=False)
    rng = random.Random(seed)
    sink = Model(keep, rng)
    _fed(db, before, rng, sink)
    assert _rows(sink) == _truth(db)


@settings(max_examples=draws(40))
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_keys_may_move_when_a_topic_grows(seed: int, keep: bool) -> None:
    """What the old partition of a key still holds is older than what came by the new one, whichever is read first."""
    db, before = _restarting(seed, "postgres", grows=True)
    rng = random.Random(seed)
    sink = Model(keep, rng)
    _fed(db, before, rng, sink)
    assert _rows(sink) == _truth(db)


@pytest.mark.parametrize("between", ["batches", "tasks"])
def test_a_delete_and_its_tombstone_may_be_parted(between: str) -> None:
    """Wherever batches or tasks end, a tombstone that comes again with its old delete takes no newer row away."""
    db = Database(TOPIC, PARTITIONS)
    for change in (("c", row(1, "c", 1)), ("d", 1), ("c", row(1, "c", 2))):
        db.transaction(change)
    again = [attrs.evolve(record, offset=4 + place) for place, record in enumerate(db.log[1:3])]
    at, records = (db.log[0].topic, db.log[0].partition), [*db.log, *again]
    for cut in range(1, len(records)):
        sink = Model(keep=False, rng=random.Random(1))
        pieces = [records[:cut], records[cut:]]
        if between == "tasks":
            sink.tasks_of = lambda lane, *_, pieces=pieces: pieces if lane else []  # type: ignore[misc]
            sink.batch(records, {})
        else:
            sink.batch(pieces[0], {})
            sink.batch(pieces[1], {at: cut})
        assert {key: n for key, (_, n, _) in sink.rows.items()} == {1: 2}


def test_the_law_can_fail() -> None:
    """Without a watermark an old update that comes again wins, and brings a deleted row back."""
    db = Database(TOPIC, PARTITIONS)
    db.transaction(("c", row(1, "c", 1)))
    db.transaction(("d", 1))
    records = [*db.log, attrs.evolve(db.log[0], offset=len(db.log))]
    for forgetful, found in ((False, {}), (True, {1: 1})):
        sink = Model(keep=False, rng=random.Random(1))
        at = (db.log[0].topic, db.log[0].partition)
        sink.batch(records[:-1], {})
        if forgetful:
            sink.stored = attrs.evolve(sink.stored, watermarks={})
        sink.batch(records[-1:], {at: records[-1].offset})
        assert {key: n for key, (_, n, _) in sink.rows.items()} == found
