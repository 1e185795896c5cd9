"""Snapshots of a table, and who has still to read them -> which may expire (pure rules)."""

from __future__ import annotations

from contextlib import nullcontext
from unittest.mock import Mock

import orjson
import pytest
from attrs import evolve
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType

from connector.errors import ConfigError
from connector.iceberg.state import offset_rows
from connector.maintenance.expiry import read_reader_positions
from connector.maintenance.expiry_rules import (
    BranchHistory,
    ExpiryRule,
    ReaderPosition,
    find_idle_sink,
    newest_commits,
    newest_foreign_commits,
    parse_reader_positions,
    plan_expiry,
)
from connector.maintenance.foreign_sinks import FOREIGN_MS
from connector.maintenance.table_state import SnapshotSummary
from connector.source.snapshots.chunks import ChunkProgress
from connector.source.snapshots.snapshot_queue import QueuedSnapshot, SnapshotQueue
from tests.unit.snapshot_histories import NOW_MS, S, make_history, make_snapshot

pytestmark = pytest.mark.unit


TEN = make_history(*(make_snapshot(number, 1000 * number) for number in range(1, 11)))


RULE = ExpiryRule(age_ms=0, retain_last=1)


def _plan(
    readers: dict[str, int], writers: tuple[int, ...] = (), age_s: int = 0, last: int = 1
) -> tuple[int, int, str]:
    positions = [ReaderPosition(name, place) for name, place in readers.items()]
    found = plan_expiry([BranchHistory(TEN)], positions, writers, ExpiryRule(age_s * S, last), 20_000 * S)
    return found.older_than_ms // S, found.snapshots, found.held_by


def test_expiry_stops_at_what_somebody_needs() -> None:
    """Age, number, a source's position, a sink's commit and the last minutes each hold expiry up; a source that has
    read all, or whose position is gone, does not."""
    assert _plan({}) == (19_400, 9, "")
    assert _plan({}, age_s=14_000) == (6_000, 5, "")
    assert _plan({}, last=4) == (19_400, 6, "")
    assert _plan({"a": 4, "b": 7}) == (4_000, 3, "a")
    assert _plan({"a": 10}) == (10_000, 9, "")
    assert _plan({"gone": 99}) == (19_400, 9, "")
    assert _plan({}, writers=(3, 99)) == (3_000, 2, "")


def test_a_source_that_began_with_an_empty_table_has_all_of_it_to_read() -> None:
    """Its position is no snapshot: the first one stays, and all after it, as long as it is there; of a table without
    snapshots nothing is needed.
    """
    whole = [*TEN[:-1], evolve(TEN[-1], is_first=True)]
    reader, rule = ReaderPosition("a", None), ExpiryRule(age_ms=0, retain_last=1)

    def plan(*snapshots: SnapshotSummary) -> tuple[int, int, int]:
        found = plan_expiry([BranchHistory(snapshots)], [reader], (), rule, 20_000 * S)
        return found.older_than_ms // S, found.snapshots, found.lag_s

    assert plan(*whole) == (1_000, 0, 19_000)
    assert plan(whole[-1]) == (1_000, 0, 19_000)
    assert plan(*TEN) == (19_400, 9, 0)
    assert plan() == (19_400, 0, 0)


def test_expiry_stops_at_what_is_needed_of_another_branch() -> None:
    """Snapshots expire by one limit on all branches, so a source that reads another one holds it up. A sink's commit
    there does not: what branched off once may stand still for good, and each branch keeps its newest snapshot.
    """
    fork = make_history(*(make_snapshot(number, 1000 * number) for number in (3, 14, 15)), *TEN[-2:])

    def limit_s(readers: list[ReaderPosition], writers: list[int]) -> int:
        found = plan_expiry([BranchHistory(TEN), BranchHistory(fork)], readers, writers, RULE, 20_000 * S)
        return found.older_than_ms // S

    assert limit_s([], []) == 19_400
    assert limit_s([ReaderPosition("a", 14)], []) == 14_000
    assert limit_s([], [14, 10]) == 10_000
    assert limit_s([], [14]) == 19_400


@pytest.mark.parametrize(
    ("ages_s", "going"),
    [
        ((None, None), 3),
        ((None, 10_000), 3),
        ((17_000, None), 2),
        ((90_000, None), 0),
        ((16_000, None), 0),
        ((5_000, None), 0),
        ((None, 2_000), 0),
    ],
)
def test_nothing_expires_where_a_branch_keeps_less_than_is_needed(
    ages_s: tuple[int | None, int | None], going: int
) -> None:
    """Iceberg goes by a branch's own retention, whatever limit it is given: shorter than what a source or a sink needs
    there, it would take that.
    """
    fork = make_history(*(make_snapshot(number, 1000 * number) for number in (3, 14, 17)))
    readers = [ReaderPosition("a", 4), ReaderPosition("b", 14)]
    ages = [None if age_s is None else age_s * S for age_s in ages_s]
    branches = [BranchHistory(TEN, ages[0]), BranchHistory(fork, ages[1])]
    found = plan_expiry(branches, readers, (), RULE, 20_000 * S)
    assert (found.snapshots, found.held_by) == (going, "a")
    by_sink = plan_expiry(branches[:1], (), [4], RULE, 20_000 * S)
    assert bool(by_sink.snapshots) == (ages[0] in (None, 17_000 * S))
    at_head = plan_expiry([BranchHistory(TEN, 1)], [ReaderPosition("a", 10)], [10], RULE, NOW_MS)
    assert at_head.snapshots == 9


def test_expiry_knows_clocks_that_differ() -> None:
    """A snapshot that follows a position or a sink's commit, and is dated before it, stays."""
    odd = [BranchHistory([make_snapshot(3, 5), make_snapshot(2, 4), make_snapshot(1, 9)])]
    assert plan_expiry(odd, [ReaderPosition("a", 1)], (), RULE, NOW_MS).older_than_ms == 4 * S
    assert plan_expiry(odd, (), [1], RULE, NOW_MS).older_than_ms == 4 * S


def test_expiry_tells_how_late_a_source_is() -> None:
    """A source is as late as the first snapshot that it has not read."""
    found = plan_expiry([BranchHistory(TEN)], [ReaderPosition("a", 4)], (), RULE, 20_000 * S)
    assert (found.held_by, found.lag_s) == ("a", 15_000)


def test_positions_of_sources_in_offset_rows() -> None:
    """Of an offsets table, rows of sources on this very table count, by whatever name: what they read, in full too, and
    that they began when the table had nothing.
    """
    source = {"table-uuid": "u", "snapshot-id": 5, "full-read": {"snapshot-id": 7, "part": 1, "part-bytes": 2}}
    rows = {
        "s/db.t": orjson.dumps(source).decode(),
        "fresh/db.t": orjson.dumps({"table-uuid": "u", "snapshot-id": None}).decode(),
        "first/db.t": orjson.dumps({**source, "snapshot-id": None}).decode(),
        "other/db.t": orjson.dumps({"table-uuid": "u"}).decode(),
        "old/db.t": orjson.dumps({**source, "table-uuid": "of another"}).decode(),
        "s/db.others": orjson.dumps({**source, "table-uuid": "v"}).decode(),
        "r/db.renamed": orjson.dumps({"table-uuid": "u", "snapshot-id": 3}).decode(),
        "sink/db.t": orjson.dumps({"offsets": {}, "table": {"uuid": "u", "snapshot-id": 9}}).decode(),
        "sink": "{}",
        "empty/db.t": "",
    }
    found = {(one.name, one.snapshot_id) for one in parse_reader_positions(rows, "u")}
    assert found == {("s", 5), ("s", 7), ("r", 3), ("fresh", None), ("first", 7)}


def test_a_snapshot_on_demand_holds_the_one_that_it_is_of() -> None:
    """A source's own row tells which snapshot a re-read is of; another table's, and one that waits, hold nothing."""
    progress = ChunkProgress("u", 3, 1, 100)
    asked = (
        QueuedSnapshot("1", "db.t", progress=progress),
        QueuedSnapshot("2", "db.t"),
        QueuedSnapshot("3", "db.others", progress=ChunkProgress("v", 4, 1, 100)),
    )
    rows = {"s": SnapshotQueue(asked).json(), "t": SnapshotQueue().json()}
    assert list(parse_reader_positions(rows, "u")) == [ReaderPosition("s", 3)]
    assert list(parse_reader_positions(rows, "another")) == []


def test_nothing_expires_by_an_offsets_table_that_does_not_exist() -> None:
    """A name with a mistake in it would let go what a source has still to read; our own table may be yet to come."""
    catalog, table = Mock(), Mock(uuid="u")
    catalog.load.return_value = None
    assert read_reader_positions(catalog, ["ns.own"], table) == []
    with pytest.raises(ConfigError, match=r"no table ns\.mistyped"):
        read_reader_positions(catalog, ["ns.own", "ns.mistyped"], table)


@pytest.mark.parametrize("kind", [LongType(), StringType()])
def test_nothing_expires_by_a_table_that_is_no_offsets_table(
    monkeypatch: pytest.MonkeyPatch, kind: PrimitiveType
) -> None:
    """One of rows that is named by mistake is told as such: nothing may end the thread that maintains the others."""
    catalog = Mock()
    metadata = catalog.load.return_value.metadata.return_value
    metadata.schema.return_value = Schema(NestedField(1, "id", kind, required=True))
    catalog.load.return_value.reading.return_value = nullcontext()
    metadata.scan.return_value.plan_files.return_value = [Mock()]
    monkeypatch.setattr(offset_rows, "_read_rows", lambda *_: [{"id": 1}])
    with pytest.raises(ConfigError, match=r"sales\.orders is no offsets table"):
        read_reader_positions(catalog, ["sales.orders"], Mock(uuid="u"))


def test_what_others_keep_beside_offsets_says_nothing() -> None:
    """A text that is no JSON is no source's position."""
    rows = {"a/b": "not JSON", "c": "{", "s/db.t": orjson.dumps({"table-uuid": "u", "snapshot-id": 5}).decode()}
    assert list(parse_reader_positions(rows, "u")) == [ReaderPosition("s", 5)]


def test_expiry_knows_how_much_a_branch_keeps_by_itself() -> None:
    """What a branch's own number of snapshots keeps is not told as what may go; an age beyond all bounds keeps all."""
    for least, going in ((None, 8), (4, 6), (100, 0)):
        found = plan_expiry([BranchHistory(TEN, None, least)], (), (), ExpiryRule(0, 2), 20_000 * S)
        assert found.snapshots == going
    assert plan_expiry([BranchHistory(TEN)], (), (), ExpiryRule(2**62 * S, 1), NOW_MS).older_than_ms == 1


def test_expiry_knows_what_tags_and_branches_stand_at() -> None:
    """These snapshots stay, and are not told as what may go: nothing would come of it, time and again."""
    found = plan_expiry([BranchHistory(TEN, pinned={3, 9, 10})], (), (), ExpiryRule(0, 1), 20_000 * S)
    assert found.snapshots == 7
    quiet = BranchHistory(TEN[:2], pinned={9})
    assert plan_expiry([quiet], (), (), ExpiryRule(0, 1), 20_000 * S).snapshots == 0


def test_a_sink_that_came_to_its_end_and_delays_expiry_is_told() -> None:
    """The newest commit of a sink that was renamed stays, and so does all since; a sink that commits delays nothing."""
    told = make_history(*(evolve(one, summary={"c": "old" if one.snapshot_id < 4 else "new"}) for one in TEN))
    found = plan_expiry([BranchHistory(told)], (), newest_commits(told, "c"), RULE, 20_000 * S)
    assert found.older_than_ms == 3000 * S
    assert find_idle_sink(told, "c", found.older_than_ms, 20_000 * S) == ("old", 16_000)
    assert find_idle_sink(told, "c", 2000 * S, 20_000 * S) is None
    assert find_idle_sink(told[:7], "c", 10_000 * S, 20_000 * S) is None


def test_newest_commits_of_each_sink() -> None:
    """Each sink finds its newest commit again, however many others came since."""
    told = [
        SnapshotSummary(9, 9, "append", {}),
        *(SnapshotSummary(n, n, "append", {"c": c}) for n, c in ((8, "a"), (7, "b"), (6, "a"))),
    ]
    assert list(newest_commits(told, "c")) == [8, 7]


FLINK, SPARK = "flink.max-committed-checkpoint-id", "spark.sql.streaming.epochId"


def test_commits_that_hold_the_offsets_of_other_programs_stay() -> None:
    """Flink's sink, Iceberg's Kafka Connect sink and Spark's streaming find in summaries what they committed: the
    newest commit of each stays, whatever the id of a job that was started again.
    """
    offsets = "kafka.connect.offsets.control.g"
    summaries: dict[int, dict[str, str]] = {
        2: {offsets: '{"0": 5}', "kafka.connect.commit-id": "x"},
        3: {SPARK: "7", "spark.sql.streaming.queryId": "q"},
        4: {FLINK: "8", "flink.operator-id": "o", "flink.job-id": "of the first start"},
        5: {FLINK: "9", "flink.operator-id": "o", "flink.job-id": "of the second"},
        6: {FLINK: "2", "flink.operator-id": "p"},
        7: {FLINK: "3"},
    }
    told = [evolve(one, summary=summaries.get(one.snapshot_id, {})) for one in TEN]
    assert list(newest_foreign_commits(told, 20_000 * S)) == [7, 6, 5, 3, 2]
    writers = newest_foreign_commits(told, 20_000 * S)
    found = plan_expiry([BranchHistory(told)], (), writers, RULE, 20_000 * S)
    assert (found.older_than_ms, found.snapshots) == (2000 * S, 1)
    assert find_idle_sink(told, "c", found.older_than_ms, 20_000 * S) == (offsets, 17_000)


def test_a_program_that_wrote_long_ago_holds_nothing_up() -> None:
    """After a week a table counts as taken over from it: else its last commit would keep all since for good."""
    told = [evolve(one, summary={FLINK: "1"} if one.snapshot_id == 4 else {}) for one in TEN]
    last_ms = 4000 * S + FOREIGN_MS
    assert list(newest_foreign_commits(told, last_ms)) == [4]
    assert list(newest_foreign_commits(told, last_ms + 1)) == []
    assert find_idle_sink(told, "c", 4000 * S, last_ms + 1) is None
