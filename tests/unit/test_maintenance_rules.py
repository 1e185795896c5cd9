"""Rules of maintenance: what is due, what may expire, who has the lease, which rewrites are let in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any
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
from connector.maintenance import maintainer
from connector.maintenance.lease_rules import LEASE_MS, Lease, UnfinishedRun
from connector.maintenance.maintainer import Maintainer
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
    MaintenanceSettings,
    ManifestPolicy,
    OrphanPolicy,
    RewritePolicy,
)
from tests.unit.snapshot_histories import S, make_history, make_snapshot

pytestmark = pytest.mark.unit

POLICY = MaintenancePolicy()
_NEVER = ExpiryPolicy(enabled=False)


def _done(number: int, at_s: int, task: str) -> SnapshotSummary:
    return SnapshotSummary(number, at_s * S, "replace", {MAINTENANCE_TASK: task})


def _added(number: int, at_s: int, size: str) -> SnapshotSummary:
    return make_snapshot(number, at_s, added_data_files="6", added_files_size=size, total_data_files="6")


def test_a_state_is_what_summaries_say() -> None:
    """Totals are the newest snapshot's; what came since a task is counted back to the snapshot that the task made."""
    state = summarize(
        make_history(
            make_snapshot(1, 10, added_data_files="5", added_equality_delete_files="7"),
            _done(2, 20, CONVERT),
            make_snapshot(3, 30, added_data_files="2", added_equality_delete_files="1"),
            make_snapshot(
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
    before, after = make_snapshot(1, 10, **added), make_snapshot(3, 30, **added, added_equality_delete_files="1")
    state = summarize(make_history(before, _done(2, 20, CONVERT), after))
    assert (state.data_files, state.delete_files, state.equality_deletes) == (12, 2, 4)
    often = evolve(POLICY, convert=ConvertPolicy(files=1), rewrite=RewritePolicy(files=12))
    assert {CONVERT, REWRITE} <= _due(often, before, after)
    assert summarize(make_history(before, _done(2, 20, CONVERT))).equality_deletes == 0


def _due(policy: MaintenancePolicy, *snapshots: SnapshotSummary, done: dict[str, int] | None = None) -> set[str]:
    now_ms = (max(each.timestamp_ms for each in snapshots) if snapshots else 0) + 5 * S
    return set(find_due_tasks(policy, summarize(make_history(*snapshots)), now_ms, {ORPHANS: now_ms, **(done or {})}))


def test_nothing_is_due_in_a_quiet_table() -> None:
    """A table without snapshots, and one that just began, have nothing to do."""
    assert _due(POLICY) == set()
    assert _due(POLICY, make_snapshot(1, 10, total_data_files="1"), done={EXPIRE: 14 * S}) == set()


@pytest.mark.parametrize(
    ("rule", "snapshots", "wanted"),
    [
        (
            ConvertPolicy(files=3),
            [make_snapshot(1, 10, added_equality_delete_files="3", total_equality_deletes="3")],
            True,
        ),
        (
            ConvertPolicy(files=4),
            [make_snapshot(1, 10, added_equality_delete_files="3", total_equality_deletes="3")],
            False,
        ),
        (ConvertPolicy(records=3), [make_snapshot(1, 10, total_equality_deletes="3")], True),
        (ConvertPolicy(interval_s=9), [make_snapshot(1, 10), make_snapshot(2, 14, total_equality_deletes="1")], True),
        (ConvertPolicy(interval_s=10), [make_snapshot(1, 10), make_snapshot(2, 14, total_equality_deletes="1")], False),
        (ConvertPolicy(interval_s=1), [make_snapshot(1, 10, total_equality_deletes="0")], False),
        (ConvertPolicy(enabled=False, records=1), [make_snapshot(1, 10, total_equality_deletes="3")], False),
    ],
)
def test_when_conversions_are_due(rule: ConvertPolicy, snapshots: list[SnapshotSummary], wanted: bool) -> None:
    """By number of files, of keys, or by time; never without equality deletes."""
    assert (CONVERT in _due(evolve(POLICY, convert=rule), *snapshots)) == wanted


@pytest.mark.parametrize(
    ("rule", "snapshots", "wanted"),
    [
        (RewritePolicy(files=6), [make_snapshot(1, 10, added_data_files="6", total_data_files="6")], True),
        (RewritePolicy(files=7), [make_snapshot(1, 10, added_data_files="6", total_data_files="6")], False),
        (RewritePolicy(added_bytes=9), [_added(1, 10, "4"), _added(2, 11, "5")], True),
        (RewritePolicy(added_bytes=9), [_added(1, 10, "4"), _done(2, 11, REWRITE), _added(3, 12, "5")], False),
        (RewritePolicy(commits=1), [make_snapshot(1, 10, added_data_files="6", total_data_files="6")], True),
        (RewritePolicy(interval_s=5), [make_snapshot(1, 10, added_data_files="6", total_data_files="6")], True),
        (RewritePolicy(files=1), [_done(1, 10, REWRITE)], False),
        (
            RewritePolicy(enabled=False, files=1),
            [make_snapshot(1, 10, added_data_files="6", total_data_files="6")],
            False,
        ),
    ],
)
def test_when_rewrites_are_due(rule: RewritePolicy, snapshots: list[SnapshotSummary], wanted: bool) -> None:
    """By files, their bytes or commits since the last one, or by time; never without a commit since."""
    assert (REWRITE in _due(evolve(POLICY, rewrite=rule), *snapshots)) == wanted


def test_when_the_rest_is_due() -> None:
    """Manifests by commits, expiry by snapshots or time, orphans by time and only if enabled."""
    many = [make_snapshot(number, number) for number in range(1, 121)]
    assert {MANIFESTS, EXPIRE} <= _due(POLICY, *many, done={EXPIRE: -3600 * S})
    assert MANIFESTS not in _due(POLICY, *many, done={MANIFESTS: 121 * S})
    assert EXPIRE not in _due(evolve(POLICY, expire=ExpiryPolicy(retain_last=200)), *many)
    rule = evolve(POLICY, expire=ExpiryPolicy(commits=50, interval_s=5000))
    old = [make_snapshot(number, 4000 + number) for number in range(1, 121)]
    assert EXPIRE in _due(rule, *old, done={EXPIRE: 3000 * S})
    assert EXPIRE not in _due(rule, *old, done={EXPIRE: 4000 * S})
    assert ORPHANS not in _due(POLICY, *many, done={ORPHANS: 0})
    assert ORPHANS in _due(evolve(POLICY, orphans=OrphanPolicy(enabled=True, interval_s=60)), *many, done={ORPHANS: 0})


def test_what_was_done_in_vain_is_not_due_again() -> None:
    """A task that found nothing at the newest snapshot waits for another one, whatever its schedule says."""
    rules = evolve(
        POLICY, convert=ConvertPolicy(files=1), rewrite=RewritePolicy(interval_s=1, min_input_files=1), expire=_NEVER
    )
    first = make_snapshot(1, 10, added_equality_delete_files="3", total_equality_deletes="3", total_data_files="6")
    counts = {"added_equality_delete_files": "1", "total_equality_deletes": "4", "total_data_files": "6"}
    vain, late = {CONVERT: 1, REWRITE: 1}, 10_000_000 * S

    def due(*snapshots: SnapshotSummary) -> dict[str, str]:
        return find_due_tasks(rules, summarize(make_history(*snapshots)), late, {}, vain)

    assert find_due_tasks(rules, summarize([first]), late).keys() == {CONVERT, REWRITE}
    assert due(first) == {}
    assert due(first, make_snapshot(2, 20, **counts)).keys() == {CONVERT, REWRITE}


def test_how_long_a_quiet_table_is_left_alone() -> None:
    """Until the first of its enabled tasks may be due by time."""
    assert idle_interval_s(POLICY) == POLICY.convert.interval_s
    assert idle_interval_s(evolve(POLICY, rate_limit_s=7000)) == 7000
    quick = evolve(POLICY, convert=ConvertPolicy(enabled=False), rewrite=RewritePolicy(interval_s=90))
    assert idle_interval_s(quick) == 90


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
    assert [parse_duration(text) for text in ("30s", "10m", "2h", "01d")] == [30, 600, 7200, 86_400]
    assert parse_tasks(" convert, expire,") == (CONVERT, EXPIRE)
    for wrong in ("10", "m", "0m", "-1m", "10 m", "1w", "999999999999d", "0" * 5000 + "s", "9" * 5000 + "s"):
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


@pytest.mark.parametrize("is_known", [True, False])
def test_manifests_are_merged_after_more_commits_than_snapshots_are_kept(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where few snapshots are kept the commits that expired count too; a table that was made again counts anew."""
    policy = MaintenancePolicy(manifests=ManifestPolicy(count=250))
    subject = Maintainer(Mock(), Mock(), Mock(maintenance=MaintenanceSettings(policy)), "s", Mock())
    table: Any = SimpleNamespace(name="db.t")
    history, found = [evolve(_done(0, 0, MANIFESTS), sequence_number=0)] if is_known else [], list[int]()
    for number in range(1, 510):
        history = [evolve(make_snapshot(number, number * 60), sequence_number=number), *history][:10]
        monkeypatch.setattr(maintainer, "_now_ms", lambda at=number: at * 60 * S)
        if MANIFESTS in subject.find_due(table, summarize(history)):
            found.append(number)
            history = [evolve(_done(number, number * 60, MANIFESTS), sequence_number=number), *history[1:]]
    assert found == [250, 500]
    again = [evolve(make_snapshot(1000, 60_000), sequence_number=1)]
    assert MANIFESTS not in subject.find_due(table, summarize(again))
    assert subject._merged == {"db.t": 0}


def test_tasks_that_are_named_are_done_by_their_schedules_though_they_are_not_enabled() -> None:
    """`maintain --every 1d --task orphans` looks for orphans, which is off by default, as it does once; only that."""
    policy = MaintenancePolicy(expire=_NEVER)
    subject = Maintainer(Mock(), Mock(), Mock(maintenance=MaintenanceSettings(policy)), "s", Mock())
    state = summarize(make_history(*(make_snapshot(number, number) for number in range(300))))
    table: Any = SimpleNamespace(name="db.t")

    def find_due(*tasks: str) -> set[str]:
        due, _ = rounds._find_due(subject, table, state, Round(tasks=tasks, by_triggers=True, execute=True))
        return set(due)

    assert find_due(ORPHANS) == {ORPHANS}
    assert find_due(EXPIRE, ORPHANS) == {EXPIRE, ORPHANS}
    assert find_due() == {MANIFESTS}


def test_what_a_rewrite_left_is_merged_although_nothing_more_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite takes so many bytes at once: in a table that stands still the next one comes by time, until one finds
    nothing.
    """
    policy = MaintenancePolicy(rewrite=RewritePolicy(interval_s=60))
    subject = Maintainer(Mock(), Mock(), Mock(maintenance=MaintenanceSettings(policy)), "s", Mock())
    table: Any = SimpleNamespace(name="db.t", snapshot_id=2)
    state = summarize(make_history(make_snapshot(1, 1, total_data_files="900"), _with_files(_done(2, 10, REWRITE))))
    told = list[bool]()
    for at_s, removed in ((20, 5), (50, None), (90, 5), (150, 0), (9_000, None)):
        monkeypatch.setattr(maintainer, "_now_ms", lambda at=at_s: at * S)
        told.append(REWRITE in subject.find_due(table, state))
        if removed is not None:
            subject._note_done(table, REWRITE, {"removed": removed})
    assert told == [False, False, True, True, False]


def _with_files(snapshot: SnapshotSummary) -> SnapshotSummary:
    return evolve(snapshot, summary={**snapshot.summary, "total-data-files": "900"})
