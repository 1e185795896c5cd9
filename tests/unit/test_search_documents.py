"""What tasks send to an index, without a node: recorded events through map and reduce into an index of the test's own.

The index keeps OpenSearch's rules for external versions; the real ones are met in tests/kafka/test_search_fixtures.py.
All fields have other names than their columns: what is written, and read again, has to follow.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
import pytest

from connector.iceberg.commit.kafka_offsets import ALL_SOURCES, LastTruncate
from connector.opensearch.bulk import document_sender
from connector.opensearch.bulk.bulk_processor import BulkActions, DocumentCounts, OnRejected
from connector.opensearch.documents.document_lookup import StoredDocument
from connector.settings import EventSettings
from connector.sink.destinations.opensearch.write import document_writer
from connector.sink.job.map_task import MapTask
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import OutputKind, unpack_value
from tests.harness.tiers import tiered
from tests.model import recordings
from tests.model.events import CLOCKS, START_NS, Clock, Database, row
from tests.model.life import Life
from tests.model.moving_rows import MovingRows, Tells
from tests.model.recordings import Record
from tests.unit.document_scene import (
    TOMBSTONES,
    Index,
    bring_in,
    cut_batches,
    find_faults,
    make_plan,
    make_runs,
    make_writers,
    run_moves,
    run_reduce_task,
    to_field,
)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    """An index that bulk requests and look-ups of tasks go to."""
    made = Index()

    class Bulk:
        def __init__(self, _: object, __: object, refuse: OnRejected, *___: object) -> None:
            self.refuse = refuse

        def send(self, actions: BulkActions) -> None:
            told = [json.loads(line) for line in actions.body.decode().splitlines()]
            ids = [next(iter(line.values()))["_id"] for line in told if isinstance(next(iter(line.values())), dict)]
            if made.refused.intersection(ids):
                for tag in actions.tags.tolist():
                    self.refuse(tag, "mapper_parsing_exception")
            else:
                made.take(actions.body)

        def settle(self) -> None:
            pass

        def finish(self) -> DocumentCounts:
            return DocumentCounts()

    def held(_: object, __: str, ids: Sequence[str], fields: Sequence[str]) -> Iterator[StoredDocument | None]:
        for one in ids:
            found = made.held.get(one)
            there = None if found is None else {to_field(name): value for name, value in found[1].items()}
            kept = None if there is None else {name: there[name] for name in fields if name in there}
            yield None if found is None or kept is None else StoredDocument(found[0], kept)

    class Writer:
        def __init__(self, *_: object) -> None:
            pass

        def write_rows(self, batch: pa.RecordBatch) -> None:
            made.remembered += batch.to_pylist()

        def close(self) -> list[bytes]:
            return []

    monkeypatch.setattr(document_writer, "TableWriter", Writer)
    monkeypatch.setattr(document_sender, "BulkProcessor", Bulk)
    monkeypatch.setattr(document_sender, "fetch_documents", held)
    return made


@pytest.mark.parametrize("table", ["customers", "toasty", "full_pk", "order_lines"])
@pytest.mark.parametrize("buckets", [1, 7])
@pytest.mark.parametrize("variant", ["json_envelope", *TOMBSTONES])
def test_a_recording_in_one_batch(index: Index, table: str, buckets: int, variant: str) -> None:
    """The recorded events in one batch end in the recorded rows: unsent values and changed keys included."""
    runs = make_runs(recordings.load(variant, table))
    batch = make_plan(runs, buckets, tombstones=variant in TOMBSTONES)
    bring_in(batch, runs)
    assert find_faults(index, batch, variant, table) == []


@pytest.mark.parametrize("table", ["customers", "toasty"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_recording_in_many_batches(index: Index, table: str, size: int, swapped: bool) -> None:
    """In batches of few records, whichever half of a change of key comes first, they end in the same rows."""
    records = recordings.load("json_envelope", table)
    batch = make_plan(make_runs(records), 3)
    for some in cut_batches(records, size, swapped=swapped):
        batch = bring_in(batch, make_runs(sorted(some, key=lambda r: (r.partition, r.offset))))
    assert find_faults(index, batch, "json_envelope", table) == []


def test_old_changes_that_come_again_change_nothing(index: Index) -> None:
    """Each recorded change sent once more, the last first and each in a batch of its own, leaves every document."""
    records = recordings.load("json_envelope", "customers")
    batch = make_plan(make_runs(records), 3)
    batch = bring_in(batch, make_runs(records))
    before = {key: row for key, (_, row) in index.held.items()}
    for record in reversed([r for r in records if r.value is not None and json.loads(r.value)["op"] != "r"]):
        batch = bring_in(batch, make_runs([record]))
    assert {key: row for key, (_, row) in index.held.items()} == before


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("seed", tiered(range(12), range(2)))
def test_any_clock_ends_in_the_sources_rows(index: Index, clock: Clock, seed: int) -> None:
    """Dates that go to and fro, reads, restarts; batches cut anywhere, and sent again as another cut after a crash."""
    rng = random.Random(seed)
    db, life = Database("s.public.t", 2, clock=clock, rng=rng), Life(4, updated=0.4, again=0.0)
    db.transaction(*(("c", row(key, "c", key)) for key in (7, 8, 9)))
    for _ in range(rng.randint(1, 14)):
        db.transaction(*life.steps(rng, set(db.rows), 4))
        if rng.random() < 0.4:
            db.read(rng.randrange(4))
        if rng.random() < 0.3:
            db.again(rng.randrange(len(db.log)))
    batch, records = make_plan(make_runs(db.log), 3), db.log
    while records:
        some = [rng.randint(1, 20) for _ in range(1 + (rng.random() < 0.3))]
        for crashed in some[:-1]:
            bring_in(batch, make_runs(records[:crashed]))
        batch, records = bring_in(batch, make_runs(records[: some[-1]])), records[some[-1] :]
    assert {key: found["n"] for key, (_, found) in index.held.items()} == {str(k): r["n"] for k, r in db.rows.items()}


@pytest.mark.parametrize("seed", tiered(range(12), range(2)))
def test_late_changes_bring_nothing_back_that_the_node_forgot(index: Index, seed: int) -> None:
    """A node that forgets the versions of its deletes after each batch, and old changes late and alone."""
    rng = random.Random(seed)
    db, life = Database("s.public.t", 2), Life(4, updated=0.4, again=0.0)
    db.transaction(*(("c", row(key, "c", key)) for key in (7, 8, 9)))
    batch, done = make_plan(make_runs(db.log), 3, remembers=True), 0
    for _ in range(rng.randint(2, 10)):
        db.transaction(*life.steps(rng, set(db.rows), 4))
        # Not those of the last transaction of their partition: nothing proves that they are older.
        newest = {record.partition: _transaction(record) for record in db.log if record.value}
        old = [r for r in db.log if r.value and _transaction(r) < newest[r.partition]]
        late = [one for one in old if rng.random() < 0.2]
        rng.shuffle(late)
        for records in (db.log[done:], late):
            if records:
                places = [attrs.evolve(r, offset=1_000 * len(db.log) + at) for at, r in enumerate(records)]
                batch = bring_in(batch, make_runs(places), list(index.remembered))
                index.gone.clear()
        done = len(db.log)
        assert {k: one["n"] for k, (_, one) in index.held.items()} == {str(k): r["n"] for k, r in db.rows.items()}


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("cuts", [[], [2], [5], [2, 5]])
def test_a_document_does_not_move_to_a_key_that_was_deleted_since(index: Index, cuts: list[int], whole: bool) -> None:
    """The old key's partition lags, in a batch or by some, and the node has forgotten the delete of the new key."""
    source = MovingRows("s", random.Random(1), tells="places in transactions", whole=float(whole))
    source.create(1)
    source.move(1, 2)
    source.delete(2)
    old, new = ([one for one in source.log if one.key == key] for key in (b'{"id": 1}', b'{"id": 2}'))
    lagging = [attrs.evolve(one, partition=1) for one in old]
    records, batch = [lagging[0], *new, *lagging[1:]], make_plan(make_runs([*new, *lagging]), 3, remembers=True)
    for start, end in zip([0, *cuts], [*cuts, len(records)], strict=True):
        some = make_runs(records[start:end])
        batch = bring_in(batch, some, list(index.remembered), index, forgets=True)
        index.gone.clear()
    assert index.held == {}


@pytest.mark.parametrize("forgets", [True, False])
def test_a_document_moves_to_a_key_that_was_deleted_before(index: Index, forgets: bool) -> None:
    """The create that leaves values out comes a batch later, and finds them under its key."""
    source = MovingRows("s", random.Random(1), tells="places in transactions", whole=0.0)
    source.create(2)
    source.delete(2)
    source.create(1)
    source.move(1, 2)
    batch = make_plan(make_runs(source.log), 3, remembers=True)
    for some in (source.log[:3], source.log[3:-1], source.log[-1:]):
        batch = bring_in(batch, make_runs(some), list(index.remembered), index, forgets=forgets)
        index.gone = {} if forgets else index.gone
    assert {key: one["big"] for key, (_, one) in index.held.items()} == {"2": source.rows[2]["big"]}


@pytest.mark.parametrize("seed", tiered(range(60), range(6)))
def test_lagging_partitions_bring_nothing_back_that_the_node_forgot(index: Index, seed: int) -> None:
    """Keys that change in three partitions, of which each batch has some other part: in the end each row of the source
    has its document, and no other is there. The node forgets all deletes behind each batch, and within it.
    """
    rng = random.Random(seed)
    tells: Tells = "places in transactions"
    source = MovingRows("s", rng, 3, rng.choice([4, 8]), tells, whole=rng.choice([0.1, 0.6]))
    source.live(rng.choice([10, 40]))
    left = {at: [one for one in source.log if one.partition == at] for at in range(3)}
    batch = make_plan(make_runs(source.log), rng.choice([1, 3]), remembers=True)
    while any(left.values()):
        some = []
        for at, own in left.items():
            count = rng.randint(0, min(len(own), rng.choice([2, 12])))
            some, left[at] = [*some, *own[:count]], own[count:]
        if some:
            batch = bring_in(batch, make_runs(some), list(index.remembered), index, forgets=rng.random() < 0.5)
        index.gone.clear()
    found = {key: (one["of"], one["n"]) for key, (_, one) in index.held.items()}
    assert found == {str(key): (one["of"], one["n"]) for key, one in source.rows.items()}


def _transaction(record: Record) -> int:
    return int(json.loads(record.value or b"")["source"]["txId"])


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("seed", tiered(range(6), range(1)))
def test_what_stands_of_late_changes_is_as_if_nobody_had_asked(index: Index, clock: Clock, seed: int) -> None:
    """Restarts of the source, with a table of deleted keys: the same documents and versions as without."""
    rng = random.Random(seed)
    db, life = Database("s.public.t", 2, clock=clock, rng=rng), Life(4, updated=0.4, again=0.0)
    db.transaction(*(("c", row(key, "c", key)) for key in (7, 8, 9)))
    for _ in range(12):
        db.transaction(*life.steps(rng, set(db.rows), 4))
        if rng.random() < 0.3:
            db.again(rng.randrange(len(db.log)))
    found = []
    for remembers in (False, True):
        batch, records = make_plan(make_runs(db.log), 3, remembers=remembers), db.log
        while records:
            batch = bring_in(batch, make_runs(records[:7]), list(index.remembered))
            records = records[7:]
        found.append(dict(index.held))
        index.held.clear()
        index.gone.clear()
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["s.made.public.t", ALL_SOURCES])
def test_what_came_before_a_truncate_is_left_out(index: Index, name: str) -> None:
    """Late changes that are older than the last truncate of their source bring nothing back; as earlier versions noted
    it, without a name, it holds for sources that the index knew by then.
    """
    db = Database("s.public.t", 1)
    db.transaction(("c", row(1, "a", 1)))
    db.transaction(("u", row(1, "b", 2)))
    batch = make_plan(make_runs(db.log), 1, remembers=True, truncates={ALL_SOURCES: LastTruncate(START_NS + 10**9)})
    after = bring_in(batch, make_runs(db.log))
    assert list(index.held) == ["1"]
    index.held.clear()
    (table,) = after.tables
    truncates = {name: LastTruncate(START_NS + 10**9)}
    bring_in(attrs.evolve(after, tables=(attrs.evolve(table, truncates=truncates),)), make_runs(db.log))
    assert index.held == {}


def _binlog(offset: int, n: int, second: int, pos: int, row: int = 0, partition: int = 0) -> Record:
    """A change of one row by MySQL."""
    ts_ms = (1_700_000_000 + second) * 1000
    source = {"name": "s", "db": "d", "table": "t", "server_id": 7, "file": "bin.000009", "pos": pos, "row": row}
    source |= {"ts_ms": ts_ms, "ts_us": ts_ms * 1000, "ts_ns": ts_ms * 10**6, "snapshot": "false"}
    value = {"before": None, "after": {"id": 1, "n": n}, "source": source, "op": "u", "ts_ms": ts_ms}
    return Record("s.d.t", partition, offset, b'{"id": 1}', json.dumps(value).encode())


WAITED = [_binlog(0, 1, 10, 100), _binlog(1, 2, 9, 200), _binlog(2, 3, 10, 300)]
"""The second statement waited for the first one's lock; the third one began in the second of the first."""


@pytest.mark.parametrize("cuts", [[], [1], [2], [1, 2]])
@pytest.mark.parametrize("crashed", range(4))
def test_a_later_change_has_no_smaller_version_than_was_given(index: Index, cuts: list[int], crashed: int) -> None:
    """Nor than what a batch gave that was cut otherwise before a crash."""
    batch = make_plan(make_runs(WAITED), 1)
    if crashed:
        bring_in(batch, make_runs(WAITED[:crashed]))
    for start, end in zip([0, *cuts], [*cuts, 3], strict=True):
        batch = bring_in(batch, make_runs(WAITED[start:end]))
    assert [row["n"] for _, row in index.held.values()] == [3]


@pytest.mark.parametrize("cuts", [[], [1], [2], [1, 2]])
def test_changes_of_a_compressed_transaction(index: Index, cuts: list[int]) -> None:
    """All have its position and date, whatever rows they count: Kafka's order stands."""
    records = [_binlog(offset, offset, 10, 100, row) for offset, row in enumerate((0, 3, 1))]
    batch = make_plan(make_runs(records), 1)
    for start, end in zip([0, *cuts], [*cuts, 3], strict=True):
        batch = bring_in(batch, make_runs(records[start:end]))
    assert [row["n"] for _, row in index.held.values()] == [2]


def test_a_key_that_moves_when_the_topic_grows(index: Index) -> None:
    """The first batch of the new partition gives no smaller version than the old partition's change had."""
    old, new = _binlog(0, 1, 10, 100), _binlog(0, 2, 9, 200, partition=1)
    batch = attrs.evolve(make_plan(make_runs([old, new]), 1), routes={"s.d.t": 0})
    batch = bring_in(batch, make_runs([old]))
    (table,) = batch.tables
    batch = attrs.evolve(batch, tables=(attrs.evolve(table, partitions={"s.d.t": 1}),))
    bring_in(batch, make_runs([new]))
    assert [row["n"] for _, row in index.held.values()] == [2]


def test_a_row_that_waited_and_is_refused_is_a_dead_letter(index: Index) -> None:
    """What the index says of a row that took values along from its old key is no less than of any other."""
    source = MovingRows("s", random.Random(1), keys=8)
    source.create(1)
    source.move(1, 2)
    (run,) = make_runs(source.log)
    batch, index.refused = make_plan([run], 3), {"2"}
    work = MapTask(batch, make_writers(batch))
    told = run_reduce_task(batch, [*work.take([run]), *work.finish()], judged=False)
    outputs = run_moves(batch, told, ())
    result = JobResult().add(unpack_value(one.payload) for one in outputs if one.kind == OutputKind.DRIVER)
    assert {letter.offset for letter in result.dead_letters} == {source.log[-1].offset}
    assert (list(index.held), index.gone) == ([], {"1": index.gone["1"]})


@pytest.mark.parametrize("whole", [True, False])
def test_rows_that_come_with_all_their_values_wait_for_no_document(index: Index, whole: bool) -> None:
    """Where nothing is left out, as MySQL's events leave nothing out, a change of key is a delete and a create."""
    source = MovingRows("s", random.Random(1), keys=100, whole=float(whole))
    for key in range(10):
        source.create(key)
    batch = bring_in(make_plan(make_runs(source.log), 3), make_runs(source.log))
    done = len(source.log)
    for key in range(10):
        source.move(key, key + 50)
    source.swap(50, 51)
    runs = make_runs(source.log[done:])
    work = MapTask(batch, make_writers(batch))
    told = run_reduce_task(batch, [*work.take([runs[0]]), *work.finish()], judged=False)
    assert whole is not any(one.kind == OutputKind.WAITING_KEYS for one in told)
    run_moves(batch, told, ())
    assert {key: one["big"] for key, (_, one) in index.held.items()} == {
        str(key): row["big"] for key, row in source.rows.items()
    }


MOVES: dict[str, tuple[Tells, dict[str, Any], bool]] = {
    "places": ("places", {}, False),
    "places in transactions": ("places in transactions", {}, False),
    "soft": ("places in transactions", {}, True),
    "time of processing": (
        "places",
        {"dedup_column": "__ts_ns", "events": EventSettings("auto", "auto", ("op", "ts_ns"), "__")},
        False,
    ),
}


@pytest.mark.parametrize("way", MOVES)
@pytest.mark.parametrize("seed", tiered(range(30), range(3)))
def test_documents_take_what_is_theirs_along(index: Index, way: str, seed: int) -> None:
    """Keys that change there and back, are swapped, or go to other rows, in one batch or some, and after a crash."""
    tells, more, keep = MOVES[way]
    rng = random.Random(f"{way}{seed}")
    source = MovingRows("s", rng, keys=rng.choice([4, 8]), tells=tells, whole=rng.choice([0.1, 0.6]))
    source.live(rng.choice([10, 40]))
    records, most, crashes, done = source.log, rng.choice([6, 30, 1000]), rng.random() < 0.5, 0
    batch = make_plan(make_runs(records), rng.choice([1, 3, 7]), keep_deletes=keep, **more)
    while done < len(records):
        end = min(done + rng.randint(1, most), len(records))
        if way == "places":
            # Changes of one transaction have one version: where a batch ends within it nobody can tell them apart.
            end = min(one for one in source.ends if one >= end)
        if crashes and rng.random() < 0.3:
            bring_in(batch, make_runs(records[done:end]))
        batch, done = bring_in(batch, make_runs(records[done:end])), end
    assert _live(index) == _expected(source)


@pytest.mark.parametrize("way", [way for way in MOVES if way != "time of processing"])
@pytest.mark.parametrize("seed", tiered(range(40), range(2)))
def test_documents_keep_what_is_theirs_when_changes_of_their_keys_come_again(index: Index, way: str, seed: int) -> None:
    """A connector restarts and sends changes of keys again, whose old keys other rows have by then."""
    tells, more, keep = MOVES[way]
    rng = random.Random(f"again {way}{seed}")
    source = MovingRows("s", rng, keys=rng.choice([4, 8, 12]), tells=tells, whole=rng.choice([0.0, 0.1, 0.6]))
    for _ in range(3):
        source.live(rng.choice([10, 30]))
        source.send_again(rng.choice(source.ends[-9:-1]))
    batch, most, done = (
        make_plan(make_runs(source.log), rng.choice([1, 3, 7]), keep_deletes=keep, **more),
        rng.choice([6, 30, 1000]),
        0,
    )
    while done < len(source.log):
        end = min(one for one in source.ends if one >= min(done + rng.randint(1, most), len(source.log)))
        batch, done = bring_in(batch, make_runs(source.log[done:end])), end
    assert _live(index) == _expected(source)


def _live(index: Index) -> dict[str, tuple[int, int, str]]:
    live = {key: one for key, (_, one) in index.held.items() if str(one.get("__deleted")) != "true"}
    return {key: (one["of"], one["n"], one["big"]) for key, one in live.items()}


def _expected(source: MovingRows) -> dict[str, tuple[int, int, str]]:
    return {str(key): (one["of"], one["n"], one["big"]) for key, one in source.rows.items()}
