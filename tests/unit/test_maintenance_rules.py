"""Rules of maintenance: what is due, what may expire, who has the lease, which rewrites are let in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from unittest.mock import Mock

import orjson
import pytest
import structlog
from attrs import evolve

from connector.cli.maintain import rounds
from connector.cli.maintain.arguments import parse_duration, parse_tasks
from connector.cli.maintain.reports import TableReport
from connector.cli.maintain.rounds import Round, maintain_tables
from connector.errors import ConfigError
from connector.iceberg.commit.commit_summary import CREATED_BY, MANIFEST_REWRITE
from connector.iceberg.commit.settlement import SnapshotChange
from connector.maintenance.expiry import read_reader_positions
from connector.maintenance.expiry_rules import (
    BranchHistory,
    ExpiryRule,
    ReaderPosition,
    find_idle_sink,
    newest_commits,
    parse_reader_positions,
    plan_expiry,
)
from connector.maintenance.lease_rules import LEASE_MS, Lease, UnfinishedRun
from connector.maintenance.rewrite_rules import commits_by_groups, count_files, may_land, rewrite_options
from connector.maintenance.size_tiers import plan_passes
from connector.maintenance.table_state import SnapshotSummary, TableState, summarize
from connector.maintenance.tasks import CONVERT, EXPIRE, MAINTENANCE_TASK, MANIFESTS, ORPHANS, REWRITE
from connector.maintenance.triggers import find_due_tasks, idle_interval_s
from connector.runtime.stop_signals import Stoppable
from connector.settings import ErrorSettings
from connector.settings.iceberg.maintenance.policies import (
    ConvertPolicy,
    ExpiryPolicy,
    MaintenancePolicy,
    OrphanPolicy,
    RewritePolicy,
)
from connector.source.snapshots.chunks import ChunkProgress
from connector.source.snapshots.snapshot_queue import QueuedSnapshot, SnapshotQueue

pytestmark = pytest.mark.unit

S = 1000
NOW_MS = 10_000_000 * S
POLICY = MaintenancePolicy()
_NEVER = ExpiryPolicy(enabled=False)


def _snapshot(number: int, at_s: int, **counts: str) -> SnapshotSummary:
    summary = {name.replace("_", "-"): text for name, text in counts.items()}
    return SnapshotSummary(number, at_s * S, "overwrite", summary)


def _done(number: int, at_s: int, task: str) -> SnapshotSummary:
    return SnapshotSummary(number, at_s * S, "replace", {MAINTENANCE_TASK: task})


def _history(*snapshots: SnapshotSummary) -> list[SnapshotSummary]:
    return sorted(snapshots, key=lambda each: -each.snapshot_id)


def test_a_state_is_what_summaries_say() -> None:
    """Totals are the newest snapshot's; what came since a task is counted back to the snapshot that the task made."""
    state = summarize(
        _history(
            _snapshot(1, 10, added_data_files="5", added_equality_delete_files="7"),
            _done(2, 20, CONVERT),
            _snapshot(3, 30, added_data_files="2", added_equality_delete_files="1"),
            _snapshot(
                4, 40, added_data_files="1", total_equality_deletes="9", total_data_files="8", total_files_size="x"
            ),
        )
    )
    assert (state.equality_deletes, state.data_files, state.size_bytes, state.snapshots) == (9, 8, 0, 4)
    since = state.since(CONVERT)
    assert (since.since_ms, since.commits, since.data_files, since.equality_delete_files) == (20 * S, 2, 3, 1)
    assert (state.since(REWRITE).since_ms, state.since(REWRITE).data_files) == (None, 8)
    assert summarize([]) == TableState()


def test_a_state_without_totals_is_what_came() -> None:
    """Where no snapshot tells totals, as after one of a writer that tells none, deletes are still due some time."""
    added = {"added_data_files": "6", "added_delete_files": "1", "added_equality_deletes": "4"}
    before, after = _snapshot(1, 10, **added), _snapshot(3, 30, **added, added_equality_delete_files="1")
    state = summarize(_history(before, _done(2, 20, CONVERT), after))
    assert (state.data_files, state.delete_files, state.equality_deletes) == (12, 2, 4)
    often = evolve(POLICY, convert=ConvertPolicy(files=1), rewrite=RewritePolicy(files=12))
    assert {CONVERT, REWRITE} <= _due(often, before, after)
    assert summarize(_history(before, _done(2, 20, CONVERT))).equality_deletes == 0


def _due(policy: MaintenancePolicy, *snapshots: SnapshotSummary, done: dict[str, int] | None = None) -> set[str]:
    now_ms = (max(each.timestamp_ms for each in snapshots) if snapshots else 0) + 5 * S
    return set(find_due_tasks(policy, summarize(_history(*snapshots)), now_ms, {ORPHANS: now_ms, **(done or {})}))


def test_nothing_is_due_in_a_quiet_table() -> None:
    """A table without snapshots, and one that just began, have nothing to do."""
    assert _due(POLICY) == set()
    assert _due(POLICY, _snapshot(1, 10, total_data_files="1"), done={EXPIRE: 14 * S}) == set()


@pytest.mark.parametrize(
    ("rule", "snapshots", "wanted"),
    [
        (ConvertPolicy(files=3), [_snapshot(1, 10, added_equality_delete_files="3", total_equality_deletes="3")], True),
        (
            ConvertPolicy(files=4),
            [_snapshot(1, 10, added_equality_delete_files="3", total_equality_deletes="3")],
            False,
        ),
        (ConvertPolicy(records=3), [_snapshot(1, 10, total_equality_deletes="3")], True),
        (ConvertPolicy(interval_s=9), [_snapshot(1, 10), _snapshot(2, 14, total_equality_deletes="1")], True),
        (ConvertPolicy(interval_s=10), [_snapshot(1, 10), _snapshot(2, 14, total_equality_deletes="1")], False),
        (ConvertPolicy(interval_s=1), [_snapshot(1, 10, total_equality_deletes="0")], False),
        (ConvertPolicy(enabled=False, records=1), [_snapshot(1, 10, total_equality_deletes="3")], False),
    ],
)
def test_when_conversions_are_due(rule: ConvertPolicy, snapshots: list[SnapshotSummary], wanted: bool) -> None:
    """By number of files, of keys, or by time; never without equality deletes."""
    assert (CONVERT in _due(evolve(POLICY, convert=rule), *snapshots)) == wanted


@pytest.mark.parametrize(
    ("rule", "snapshots", "wanted"),
    [
        (RewritePolicy(files=6), [_snapshot(1, 10, added_data_files="6", total_data_files="6")], True),
        (RewritePolicy(files=7), [_snapshot(1, 10, added_data_files="6", total_data_files="6")], False),
        (RewritePolicy(commits=1), [_snapshot(1, 10, added_data_files="6", total_data_files="6")], True),
        (RewritePolicy(interval_s=5), [_snapshot(1, 10, added_data_files="6", total_data_files="6")], True),
        (RewritePolicy(files=1), [_done(1, 10, REWRITE)], False),
        (RewritePolicy(enabled=False, files=1), [_snapshot(1, 10, added_data_files="6", total_data_files="6")], False),
    ],
)
def test_when_rewrites_are_due(rule: RewritePolicy, snapshots: list[SnapshotSummary], wanted: bool) -> None:
    """By files or commits since the last one, or by time; never without a commit since."""
    assert (REWRITE in _due(evolve(POLICY, rewrite=rule), *snapshots)) == wanted


def test_when_the_rest_is_due() -> None:
    """Manifests by commits, expiry by snapshots or time, orphans by time and only if enabled."""
    many = [_snapshot(number, number) for number in range(1, 121)]
    assert {MANIFESTS, EXPIRE} <= _due(POLICY, *many, done={EXPIRE: -3600 * S})
    assert MANIFESTS not in _due(POLICY, *many, done={MANIFESTS: 121 * S})
    assert EXPIRE not in _due(evolve(POLICY, expire=ExpiryPolicy(retain_last=200)), *many)
    rule = evolve(POLICY, expire=ExpiryPolicy(commits=50, interval_s=5000))
    old = [_snapshot(number, 4000 + number) for number in range(1, 121)]
    assert EXPIRE in _due(rule, *old, done={EXPIRE: 3000 * S})
    assert EXPIRE not in _due(rule, *old, done={EXPIRE: 4000 * S})
    assert ORPHANS not in _due(POLICY, *many, done={ORPHANS: 0})
    assert ORPHANS in _due(evolve(POLICY, orphans=OrphanPolicy(enabled=True, interval_s=60)), *many, done={ORPHANS: 0})


def test_what_was_done_in_vain_is_not_due_again() -> None:
    """A task that found nothing at the newest snapshot waits for another one, whatever its schedule says."""
    rules = evolve(
        POLICY, convert=ConvertPolicy(files=1), rewrite=RewritePolicy(interval_s=1, min_input_files=1), expire=_NEVER
    )
    first = _snapshot(1, 10, added_equality_delete_files="3", total_equality_deletes="3", total_data_files="6")
    counts = {"added_equality_delete_files": "1", "total_equality_deletes": "4", "total_data_files": "6"}
    vain, late = {CONVERT: 1, REWRITE: 1}, 10_000_000 * S

    def due(*snapshots: SnapshotSummary) -> dict[str, str]:
        return find_due_tasks(rules, summarize(_history(*snapshots)), late, {}, vain)

    assert find_due_tasks(rules, summarize([first]), late).keys() == {CONVERT, REWRITE}
    assert due(first) == {}
    assert due(first, _snapshot(2, 20, **counts)).keys() == {CONVERT, REWRITE}


def test_how_long_a_quiet_table_is_left_alone() -> None:
    """Until the first of its enabled tasks may be due by time."""
    assert idle_interval_s(POLICY) == POLICY.convert.interval_s
    assert idle_interval_s(evolve(POLICY, rate_limit_s=7000)) == 7000
    quick = evolve(POLICY, convert=ConvertPolicy(enabled=False), rewrite=RewritePolicy(interval_s=90))
    assert idle_interval_s(quick) == 90


TEN = _history(*(_snapshot(number, 1000 * number) for number in range(1, 11)))
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


def test_expiry_stops_at_what_is_needed_of_another_branch() -> None:
    """Snapshots expire by one limit on all branches, so a source that reads another one holds it up. A sink's commit
    there does not: what branched off once may stand still for good, and each branch keeps its newest snapshot.
    """
    fork = _history(*(_snapshot(number, 1000 * number) for number in (3, 14, 15)), *TEN[-2:])

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
    fork = _history(*(_snapshot(number, 1000 * number) for number in (3, 14, 17)))
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
    odd = [BranchHistory([_snapshot(3, 5), _snapshot(2, 4), _snapshot(1, 9)])]
    assert plan_expiry(odd, [ReaderPosition("a", 1)], (), RULE, NOW_MS).older_than_ms == 4 * S
    assert plan_expiry(odd, (), [1], RULE, NOW_MS).older_than_ms == 4 * S


def test_expiry_tells_how_late_a_source_is() -> None:
    """A source is as late as the first snapshot that it has not read."""
    found = plan_expiry([BranchHistory(TEN)], [ReaderPosition("a", 4)], (), RULE, 20_000 * S)
    assert (found.held_by, found.lag_s) == ("a", 15_000)


def test_positions_of_sources_in_offset_rows() -> None:
    """Of an offsets table, rows of sources on this very table count, by whatever name: what they read, and what they
    read in full.
    """
    source = {"table-uuid": "u", "snapshot-id": 5, "full-read": {"snapshot-id": 7, "part": 1, "part-bytes": 2}}
    rows = {
        "s/db.t": orjson.dumps(source).decode(),
        "fresh/db.t": orjson.dumps({"table-uuid": "u", "snapshot-id": None}).decode(),
        "old/db.t": orjson.dumps({**source, "table-uuid": "of another"}).decode(),
        "s/db.others": orjson.dumps({**source, "table-uuid": "v"}).decode(),
        "r/db.renamed": orjson.dumps({"table-uuid": "u", "snapshot-id": 3}).decode(),
        "sink/db.t": orjson.dumps({"offsets": {}, "table": {"uuid": "u", "snapshot-id": 9}}).decode(),
        "sink": "{}",
        "empty/db.t": "",
    }
    found = {(one.name, one.snapshot_id) for one in parse_reader_positions(rows, "u")}
    assert found == {("s", 5), ("s", 7), ("r", 3)}


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


def test_expiry_knows_how_much_a_branch_keeps_by_itself() -> None:
    """What a branch's own number of snapshots keeps is not told as what may go; an age beyond all bounds keeps all."""
    for least, going in ((None, 8), (4, 6), (100, 0)):
        found = plan_expiry([BranchHistory(TEN, None, least)], (), (), ExpiryRule(0, 2), 20_000 * S)
        assert found.snapshots == going
    assert plan_expiry([BranchHistory(TEN)], (), (), ExpiryRule(2**62 * S, 1), NOW_MS).older_than_ms == 1


def test_a_sink_that_came_to_its_end_and_delays_expiry_is_told() -> None:
    """The newest commit of a sink that was renamed stays, and so does all since; a sink that commits delays nothing."""
    told = _history(*(evolve(one, summary={"c": "old" if one.snapshot_id < 4 else "new"}) for one in TEN))
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


def test_a_lease_is_one_owners_until_it_ends() -> None:
    """A lease is free for its owner, and for others when it has ended or was given back; what was handed stays."""
    lease = Lease(handed=("convert",)).take("a", 100)
    assert Lease.parse(lease.json()) == lease
    assert lease.is_free("a", 101) and not lease.is_free("b", 101)
    assert lease.is_free("b", 100 + LEASE_MS)
    assert lease.release().is_free("b", 101) and lease.release().handed == ("convert",)
    assert Lease.parse(None).is_free("b", 0)


def test_runs_that_did_not_come_to_their_end_are_remembered() -> None:
    """One that was killed, and one of which something failed; not one that gave its lease back, nor one renewed."""
    killed = Lease().take("a", 100, "r1").renew("a", 200)
    assert (killed.run, killed.left) == ("r1", ())
    next_one = killed.take("b", 900_000, "r2")
    assert next_one.left == (UnfinishedRun("r1", 200 + LEASE_MS),)
    assert Lease.parse(next_one.json()) == next_one
    assert next_one.release().left == next_one.left
    assert [one.run for one in next_one.release(failed=True).left] == ["r1", "r2"]
    assert next_one.without(["r1"]).left == ()
    assert Lease.parse('{"owner":"a","until-ms":5}') == Lease("a", 5)


def test_when_a_killed_run_can_commit_no_more() -> None:
    """Once a snapshot was made after its lease ended: its commit demands the one before."""
    run = UnfinishedRun("r", 1000)
    assert run.can_commit(999) and run.can_commit(1000)
    assert not run.can_commit(1001)


def test_rewrites_stay_within_their_bytes() -> None:
    """A budget of bytes is so many files of the mean size; new files keep the number of those that they replace."""
    state = TableState(data_files=8, delete_files=2, size_bytes=1000)
    policy = RewritePolicy(max_bytes=500, target_bytes=9, delete_files=3, max_commits=4, min_input_files=2)
    (one,) = plan_passes(policy, state, 100)
    assert count_files(500, state, one) == 5
    assert count_files(1, state, one) == 2
    options = rewrite_options(policy, state, one, by_groups=True)
    assert options["max-files-to-rewrite"] == "5"
    assert options["use-starting-sequence-number"] == "true"
    assert (options["target-file-size-bytes"], options["delete-file-threshold"]) == ("9", "3")
    assert (options["partial-progress.enabled"], options["partial-progress.max-commits"]) == ("true", "4")
    plain = rewrite_options(RewritePolicy(), state, one, by_groups=False)
    assert (plain["use-starting-sequence-number"], plain["partial-progress.enabled"]) == ("true", "false")
    assert not {"delete-file-threshold", "partial-progress.max-commits"} & plain.keys()


def test_when_groups_of_files_are_committed_apart() -> None:
    """Where much is read at once, or one commit of all has failed; never where that is switched off."""
    small, large = TableState(size_bytes=10**9), TableState(size_bytes=10**12)
    patient, alone = RewritePolicy(max_bytes=10**11), RewritePolicy(max_bytes=10**11, partial_progress=False)
    assert not commits_by_groups(RewritePolicy(), large, has_failed=False)
    assert not commits_by_groups(patient, small, has_failed=False)
    assert commits_by_groups(patient, large, has_failed=False)
    assert commits_by_groups(RewritePolicy(), small, has_failed=True)
    assert not commits_by_groups(alone, large, has_failed=True)


def test_rewrites_that_take_deletes_along_are_refused() -> None:
    """A rewrite may take deletes away that its files do not need, and none that are newer than what it replaces."""
    summary = {"removed-equality-delete-files": "1"}
    assert may_land(SnapshotChange("replace", summary), [])
    assert not may_land(SnapshotChange("replace", summary, revives_rows=True), [])


@pytest.mark.parametrize(
    ("operation", "summary", "may"),
    [
        ("overwrite", {"added-equality-delete-files": "1"}, True),
        ("replace", {MAINTENANCE_TASK: REWRITE}, True),
        ("replace", {MANIFEST_REWRITE: "7"}, True),
        ("replace", {MAINTENANCE_TASK: CONVERT, CREATED_BY: "a"}, False),
        ("replace", {CREATED_BY: "a"}, False),  # deletes that the guard gave back
        ("replace", {}, False),
    ],
)
def test_what_a_rewrite_may_land_upon(operation: str, summary: dict[str, str], may: bool) -> None:
    """Not upon what changed by which deletes the rows go that it read: they would live again."""
    later = [SnapshotChange("append", {}), SnapshotChange(operation, summary)]
    assert may_land(SnapshotChange("replace", {}), later) == may


def test_what_the_command_line_reads() -> None:
    """Durations and names of tasks; anything else is a configuration error that says what to write."""
    assert [parse_duration(text) for text in ("30s", "10m", "2h", "1d")] == [30, 600, 7200, 86_400]
    assert parse_tasks(" convert, expire,") == (CONVERT, EXPIRE)
    for wrong in ("10", "m", "0m", "-1m", "10 m", "1w", "999999999999d"):
        with pytest.raises(ConfigError):
            parse_duration(wrong)
    for wrong, told in (("convert,compact", "compact"), ("", "no task"), (" , ", "no task")):
        with pytest.raises(ConfigError, match=told):
            parse_tasks(wrong)


@pytest.mark.parametrize("every_s", [None, 600])
def test_a_stop_ends_maintenance_after_the_table_at_hand(
    every_s: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked to stop it begins no other table, and what fails meanwhile is no error: its workers may be gone already."""
    asked_to: list[Stoppable] = []

    def note(running: Stoppable) -> AbstractContextManager[None]:
        asked_to.append(running)
        return nullcontext()

    def do_round(*_: object, **__: object) -> Iterator[TableReport]:
        yield TableReport("a")
        asked_to[0].stop()
        yield TableReport("b", failure="a worker exited")
        raise AssertionError("c had its turn")

    for name in ("Catalog", "LeaseTable", "Maintainer"):
        monkeypatch.setattr(rounds, name, Mock())
    monkeypatch.setattr(rounds, "open_session", lambda _: nullcontext(Mock()))
    monkeypatch.setattr(rounds, "stop_on_signals", note)
    monkeypatch.setattr(rounds, "do_round", do_round)
    settings = Mock(errors=ErrorSettings("all", "t", -1, 0.1, 1, 5_000, 1))
    with structlog.testing.capture_logs() as lines:
        maintain_tables(settings, Round(execute=True), every_s=every_s, as_json=True)
    assert [line["event"] for line in lines] == ["stopped as asked"]
    assert list(orjson.loads(capsys.readouterr().out)["tables"]) == ["a", "b"]
