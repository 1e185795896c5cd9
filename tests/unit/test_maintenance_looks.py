"""What a look at a table finds to do: what the task itself would find, and without reading more than it has to."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import attrs
import pytest
import structlog
from pyspark.errors.exceptions.captured import PythonException

from connector.cli.maintain import rounds
from connector.cli.maintain.reports import TableReport, print_reports
from connector.cli.maintain.rounds import Round
from connector.errors import ConfigError, FatalError
from connector.iceberg.catalog import table as table_module
from connector.iceberg.catalog.metadata_file import load_static_table
from connector.iceberg.catalog.table import Table
from connector.maintenance import expiry, group_rewrite, live_files, maintainer, spark_actions
from connector.maintenance.expiry import find_expiry
from connector.maintenance.file_counts import FileCounts
from connector.maintenance.lease_rules import Lease
from connector.maintenance.maintainer import Maintainer, TaskOutcome
from connector.maintenance.metadata_files import MetadataFiles, find_metadata_of_others, metadata_folders, plain_path
from connector.maintenance.partitions import PartitionFiles
from connector.maintenance.rewrite_rules import rewrite_options
from connector.maintenance.size_tiers import plan_passes
from connector.maintenance.spark_actions import count_rewrite_groups
from connector.maintenance.table_state import SnapshotSummary, TableState
from connector.maintenance.tasks import CONVERT, EXPIRE, MAINTENANCE_TASK, MANIFESTS, ORPHANS, REWRITE
from connector.settings import load
from connector.settings.iceberg.maintenance.policies import (
    ExpiryPolicy,
    MaintenancePolicy,
    MaintenanceSettings,
    OrphanPolicy,
    RewritePolicy,
)
from tests.unit.test_size_tiers import KIB, MIB, TARGET, Files

pytestmark = pytest.mark.unit

S = 1000
NOW_MS = 10_000_000 * S
READABLE = '{"type": "struct", "fields": [{"id": 1, "name": "c", "required": false, "type": "timestamp"}]}'


# --- what a rewrite would find ----------------------------------------------------------------------------------------


@attrs.define
class Planner:
    """Iceberg's planner of rewrites, as `Files` chooses."""

    files: Files
    told: dict[str, str] = attrs.field(factory=dict)

    def init(self, options: dict[str, str]) -> None:
        """Take its options."""
        self.told = options

    def plan(self) -> Any:
        """Count what a rewrite by these options changes, in a copy."""
        copy = Files({partition: list(sizes) for partition, sizes in self.files.sizes.items()})
        gone = copy._rewrite_once(self.told)
        return SimpleNamespace(totalGroupCount=lambda: gone)


def _plan_by(files: Files, monkeypatch: pytest.MonkeyPatch) -> Any:
    class Options(dict[str, str]):
        put = dict.__setitem__

    iceberg = SimpleNamespace(
        expressions=Mock(), actions=SimpleNamespace(BinPackRewriteFilePlanner=lambda *_: Planner(files))
    )
    java = SimpleNamespace(
        java=SimpleNamespace(util=SimpleNamespace(HashMap=Options)),
        org=SimpleNamespace(apache=SimpleNamespace(iceberg=iceberg)),
    )
    monkeypatch.setattr(group_rewrite, "jvm", lambda _: java)
    monkeypatch.setattr(spark_actions, "activate_session", lambda _: None)
    return SimpleNamespace(
        name="db.t",
        java=None,
        snapshot_id=1,
        schema_json=READABLE,
        layout=lambda: SimpleNamespace(target_file_size_bytes=TARGET),
    )


def draw_files(rng: Random) -> Files:
    """Some partitions with files of all sizes, as a table has them between two rewrites."""
    files = Files()
    for partition in range(rng.randint(1, 4)):
        for low, high in ((KIB, MIB), (MIB, 4 * MIB), (4 * MIB, 64 * MIB), (64 * MIB, 2 * TARGET)):
            files.append(partition, [rng.randint(low, high) for _ in range(rng.choice([0, 0, 1, 3, 4, 5, 9]))])
    return files


def draw_policy(rng: Random) -> RewritePolicy:
    """The default, most often; or something of one's own."""
    return rng.choice(
        [
            *[RewritePolicy()] * 3,
            RewritePolicy(min_input_files=rng.randint(2, 7)),
            RewritePolicy(min_file_bytes=rng.randint(1, 64) * MIB),
            RewritePolicy(target_bytes=rng.randint(1, 64) * MIB),
            RewritePolicy(max_bytes=rng.randint(1, 300) * MIB),
        ]
    )


def test_a_look_finds_a_rewrite_where_the_rewrite_finds_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any set of files the dry run, and the look before a lease is taken, say what all calls of a rewrite pick."""
    rng, answers = Random(7), list[bool]()
    for _ in range(400):
        files, policy = draw_files(rng), draw_policy(rng)
        table = _plan_by(files, monkeypatch)
        groups = count_rewrite_groups(Mock(), table, policy, files.state())
        before = {partition: list(sizes) for partition, sizes in files.sizes.items()}
        assert (groups > 0) == (files.rewrite(policy) > 0), (policy, before)
        answers.append(groups > 0)
    assert 40 < sum(answers) < 360


def test_a_rewrites_options_stay_within_what_iceberg_reads() -> None:
    """Sizes beyond all bounds, of options or of a table's properties, are still numbers that Java can read."""
    most = 2**63 - 1
    huge = RewritePolicy(max_bytes=most)
    for policy in (attrs.evolve(huge, target_bytes=most), attrs.evolve(huge, min_file_bytes=most)):
        state = TableState(data_files=10)
        for one in plan_passes(policy, state, most):
            told = rewrite_options(policy, state, one, by_groups=False)
            sizes = [int(told[f"{name}-bytes"]) for name in ("min-file-size", "target-file-size", "max-file-size")]
            assert sizes == sorted(set(sizes))
            assert max(*sizes, int(told["max-file-group-size-bytes"])) <= most


NESTED = {"type": "list", "element-id": 9, "element": "timestamptz_ns", "element-required": False}


@pytest.mark.parametrize("kind", ["time", "timestamp_ns", NESTED])
def test_what_only_icebergs_spark_code_does_is_left_where_it_reads_no_table(
    kind: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifests are not merged; what the table has is counted by other means."""
    schema = json.dumps({"type": "struct", "fields": [{"id": 1, "name": "c", "required": False, "type": kind}]})
    table, java = Mock(snapshot_id=7, schema_json=schema, branch="main"), Mock(side_effect=AssertionError)
    for module in (spark_actions, live_files):
        monkeypatch.setattr(module, "activate_session", java)
    parts = [PartitionFiles("p=1", small_files=2, deletion_vectors=1), PartitionFiles("p=2", equality_delete_files=3)]
    monkeypatch.setattr(live_files, "count_partitions", lambda *_: parts)
    spark: Any = Mock()
    assert spark_actions.count_small_manifests(table) == 0
    assert not any(spark_actions.rewrite_manifests(spark, table, "s").values())
    assert live_files.count_live_files(spark, table, RewritePolicy()) == FileCounts(7, 3, 0, 1, 2)


@pytest.mark.parametrize(("failed", "levels"), [(0, []), (5, ["warning"])])
def test_files_that_could_not_be_merged_are_a_warning(
    failed: int, levels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg raises nothing where groups of files fail by themselves."""
    done = {"removed": 0, "added": 0, "bytes": 0, "failed": failed}
    monkeypatch.setattr(maintainer, "rewrite_data_files", lambda *_, **__: done)
    table = Mock(snapshot_id=7, schema_json=READABLE, metadata_files=1)
    table.name = "db.t"
    subject = _maintainer(monkeypatch, History(), MaintenancePolicy())
    with structlog.testing.capture_logs() as lines:
        assert subject._rewrite(table, RewritePolicy(), Mock(is_alone=False)) == done
    assert [line["log_level"] for line in lines] == levels


# --- when it is looked ------------------------------------------------------------------------------------------------


class History:
    """Snapshots of a table of which those of the last ten minutes are kept."""

    def __init__(self) -> None:
        """Begin without any."""
        self.ancestors: list[SnapshotSummary] = []

    def add(self, at_s: int, **counts: str) -> None:
        """Commit."""
        told = {name.replace("_", "-"): text for name, text in counts.items()}
        self.ancestors.insert(0, SnapshotSummary(len(self.ancestors) + at_s, at_s * S, "overwrite", told))
        self.ancestors = [one for one in self.ancestors if one.timestamp_ms > (at_s - 600) * S]

    def done(self, at_s: int, task: str) -> None:
        """Commit what a task does."""
        self.ancestors.insert(0, SnapshotSummary(at_s, at_s * S, "replace", {MAINTENANCE_TASK: task}))


def _maintainer(monkeypatch: pytest.MonkeyPatch, history: History, policy: MaintenancePolicy) -> Maintainer:
    monkeypatch.setattr(maintainer, "read_history", lambda _: history.ancestors)
    settings: Any = SimpleNamespace(maintenance=MaintenanceSettings(policy), offsets_table="db.offsets")
    return Maintainer(Mock(), Mock(), settings, "s", Mock(recall=lambda _: Lease()))


@pytest.mark.parametrize("is_known", [True, False])
def test_tasks_are_due_by_time_where_snapshots_are_kept_for_less(
    is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where ten minutes of snapshots are kept files are merged once an hour, though none tells of the last time."""
    history, found = History(), list[int]()
    table: Any = SimpleNamespace(name="db.t", metadata_files=1)
    subject = _maintainer(monkeypatch, history, MaintenancePolicy(rewrite=RewritePolicy(files=100_000)))
    begun = 1_000_000
    if is_known:
        history.done(begun, REWRITE)
    for at_s in range(begun + 10, begun + 10_000, 10):
        history.add(at_s, added_data_files="1", total_data_files="900")
        monkeypatch.setattr(maintainer, "_now_ms", lambda at=at_s: at * S)
        if REWRITE in subject.find_due(table, subject.read_state(table)):
            history.done(at_s, REWRITE)
            found.append(at_s - begun)
    assert len(found) == 2 and 3600 <= found[0] <= 3700 and 7200 <= found[1] <= 7300


def test_what_was_done_in_vain_counts_as_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite that found nothing to merge is due again after as many files as after one that did."""
    history, table = History(), Mock(snapshot_id=7, schema_json=READABLE)
    table.name = "db.t"
    subject = _maintainer(monkeypatch, history, MaintenancePolicy(rewrite=RewritePolicy(files=100)))
    monkeypatch.setattr(maintainer, "_now_ms", lambda: NOW_MS)
    monkeypatch.setattr(maintainer, "count_rewrite_groups", lambda *_: 0)

    def commit(count: str) -> bool:
        history.add(NOW_MS // S - 60, added_data_files=count, total_data_files="900")
        table.snapshot_id = history.ancestors[0].snapshot_id
        return REWRITE in subject.find_due(table, subject.read_state(table))

    assert commit("100")
    (told,) = subject.run(table, [REWRITE])
    assert told == TaskOutcome(REWRITE, {"removed": 0, "added": 0})
    subject.leases.hold.assert_not_called()  # type: ignore[attr-defined]
    assert not commit("1")
    assert not commit("98")
    assert commit("1")


@pytest.mark.parametrize(("groups", "told"), [(0, []), (3, [{REWRITE: "100 data files"}])])
def test_only_what_has_something_to_do_is_told_as_due(
    groups: int, told: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose look finds nothing, as where a batch reads all old snapshots, is no line of the log."""
    subject, table = _maintainer(monkeypatch, History(), MaintenancePolicy()), Mock(snapshot_id=7, schema_json=READABLE)
    table.name = "db.t"
    subject.leases.hold = lambda _: nullcontext()  # type: ignore[assignment, method-assign, return-value]
    monkeypatch.setattr(maintainer, "count_rewrite_groups", lambda *_: groups)
    monkeypatch.setattr(Maintainer, "_count_old", lambda *_: 0)
    with structlog.testing.capture_logs() as lines:
        subject.run(table, [REWRITE, EXPIRE], reasons={REWRITE: "100 data files", EXPIRE: "9 snapshots"})
    assert [line["tasks"] for line in lines if line["event"] == "maintenance is due"] == told


def test_one_file_full_of_deletes_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of one file is due by time where rows of it may be deleted, and never otherwise."""
    policy = MaintenancePolicy(rewrite=RewritePolicy(interval_s=1))
    for deletes, wanted in (("1", True), ("0", False)):
        history, table = History(), SimpleNamespace(name="db.t", metadata_files=1)
        history.add(NOW_MS // S - 60, total_data_files="1", total_delete_files=deletes)
        subject = _maintainer(monkeypatch, history, policy)
        monkeypatch.setattr(maintainer, "_now_ms", lambda: NOW_MS)
        assert (REWRITE in subject.find_due(table, subject.read_state(table))) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(("by_triggers", "due", "counted"), [(True, {}, 0), (True, {EXPIRE: "x"}, 1), (False, {}, 1)])
def test_manifests_are_read_where_something_is_due(
    by_triggers: bool, due: dict[str, str], counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated by schedules, a look at a table with nothing to do reads no manifest; asked once it shows all."""
    count = Mock(return_value=[])
    monkeypatch.setattr(rounds, "count_partitions", count)
    monkeypatch.setattr(rounds, "count_small_manifests", lambda _: 0)
    subject: Any = Mock(find_due=lambda *_: due, count_rewrites=lambda *_: 0, find_expiry=lambda _: None)
    subject.find_needless.return_value = []
    subject.read_state.return_value = TableState()
    subject.policy_of.return_value = MaintenancePolicy()
    rounds._do_table(subject, Mock(), Round(by_triggers=by_triggers))
    assert count.call_count == counted


def test_a_dry_run_by_schedules_tells_what_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that its schedule asks for and that would find nothing is not told; one that cannot be looked at is."""
    monkeypatch.setattr(rounds, "count_partitions", lambda *_: [])
    due = {REWRITE: "120 data files", MANIFESTS: "100 commits", EXPIRE: "900 snapshots"}
    subject: Any = Mock(find_due=lambda *_: due)
    subject.find_needless.return_value = [TaskOutcome(REWRITE, {"removed": 0}), TaskOutcome(EXPIRE, failure="away")]
    subject.read_state.return_value = TableState()
    subject.policy_of.return_value = MaintenancePolicy()
    told = rounds._do_table(subject, Mock(), Round(by_triggers=True))
    assert list(told.due) == [MANIFESTS, EXPIRE]


@pytest.mark.parametrize(("removed", "tasks"), [(3, [CONVERT, REWRITE]), (0, [CONVERT])])
def test_what_a_conversion_leaves_is_rewritten_with_it(
    removed: int, tasks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that a conversion leaves full of deletes are rewritten in the same run; without any nothing is told."""
    monkeypatch.setattr(rounds, "count_partitions", lambda *_: [])
    monkeypatch.setattr(rounds, "count_small_manifests", lambda _: 0)

    def run(_: Any, asked: Sequence[str]) -> list[TaskOutcome]:
        assert asked == (CONVERT, REWRITE)
        return [TaskOutcome(CONVERT, {"delete_files": 1}), TaskOutcome(REWRITE, {"removed": removed, "added": 1})]

    subject: Any = Mock(run=run, count_rewrites=lambda *_: 0, find_expiry=lambda _: None)
    subject.read_state.return_value = TableState(equality_deletes=1)
    subject.policy_of.return_value = MaintenancePolicy()
    told = rounds._do_table(subject, Mock(), Round(execute=True))
    assert list(told.due) == [one.task for one in told.done] == tasks


def test_a_job_that_fails_as_none_should_holds_up_no_other_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark raises an exception of its own where a task's Python failed; its table is told as one that failed."""
    monkeypatch.setattr(rounds, "count_partitions", lambda *_: [])
    failed = type("Failed", (PythonException,), {"__init__": lambda _: None, "__str__": lambda _: "a bad file"})()
    failed._origin = None
    subject: Any = Mock(find_due=lambda *_: {CONVERT: "x"})
    subject.read_state.return_value = TableState()
    subject.run.side_effect = failed
    table: Any = SimpleNamespace(name="db.t", refresh=lambda: None)
    told = rounds._do_table(subject, table, Round(by_triggers=True, execute=True))
    assert told.failure == "maintaining table db.t: a bad file"


@pytest.mark.parametrize("execute", [True, False])
def test_a_task_that_cannot_be_looked_at_keeps_no_other_from_its_turn(
    execute: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where one task cannot tell what it has to do, the others are shown or done, and its failure is told with them."""
    monkeypatch.setattr(rounds, "count_partitions", lambda *_: [PartitionFiles("p=1")])
    monkeypatch.setattr(rounds, "count_small_manifests", lambda _: 7)
    monkeypatch.setattr(rounds, "delete_orphan_files", Mock(side_effect=FatalError("another table is there")))
    asked = list[str]()

    def run(_: Any, tasks: Sequence[str]) -> list[TaskOutcome]:
        asked.extend(tasks)
        return [TaskOutcome(task, {"removed": int(task != REWRITE)}) for task in tasks]

    subject: Any = Mock(run=run, count_rewrites=lambda *_: 0)
    subject.find_expiry.side_effect = ConfigError("there is no table x")
    subject.read_state.return_value = TableState(equality_deletes=1)
    subject.policy_of.return_value = MaintenancePolicy(orphans=OrphanPolicy(enabled=True))
    table: Any = SimpleNamespace(name="db.t", refresh=lambda: None)
    told = rounds._do_table(subject, table, Round(execute=execute))
    orphans = [ORPHANS] if execute else []
    assert list(told.due) == [CONVERT, MANIFESTS, *orphans]
    assert set(asked) == ({CONVERT, REWRITE, MANIFESTS, ORPHANS} if execute else set())
    assert told.failures == ["expire: there is no table x", *(() if execute else ("orphans: another table is there",))]
    assert told.partitions and told.failure is None
    print_reports([told], executed=execute, as_json=False)
    assert "db.t: expire: failed: there is no table x" in capsys.readouterr().out


# --- what it reads ----------------------------------------------------------------------------------------------------


def _table_of(
    tmp_path: Path,
    snapshots: int,
    summaries: dict[int, dict[str, str]] | None = None,
    properties: dict[str, str] | None = None,
) -> Table:
    document = {
        "format-version": 2,
        "table-uuid": "00000000-0000-0000-0000-000000000001",
        "location": f"file:{tmp_path}",
        "last-sequence-number": snapshots,
        "last-updated-ms": NOW_MS,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "current-snapshot-id": snapshots,
        "refs": {
            "main": {"snapshot-id": snapshots, "type": "branch", "min-snapshots-to-keep": 4},
            "audit": {"snapshot-id": 2, "type": "branch", "max-snapshot-age-ms": 5},
            "monthly": {"snapshot-id": 1, "type": "tag"},
            "daily": {"snapshot-id": 3, "type": "tag", "max-ref-age-ms": 5},
        },
        "properties": dict(properties or {}),
        "snapshots": [
            {
                "snapshot-id": number,
                "sequence-number": number,
                **({"parent-snapshot-id": number - 1} if number > 1 else {}),
                "timestamp-ms": number * S,
                "manifest-list": "file:/none",
                "summary": {"operation": "append", **(summaries or {}).get(number, {})},
            }
            for number in range(1, snapshots + 1)
        ],
    }
    path = tmp_path / "v1.metadata.json"
    path.write_text(json.dumps(document))
    current = SimpleNamespace(metadataFileLocation=lambda: str(path))
    java = Mock(properties=dict, io=lambda: SimpleNamespace(properties=dict), uuid=lambda: document["table-uuid"])
    java.operations.return_value = SimpleNamespace(current=lambda: current)
    java.snapshot.return_value = SimpleNamespace(snapshotId=lambda: snapshots)
    return Table(None, "db.t", java, {"type": "hadoop"})  # type: ignore[arg-type]


def test_expiry_reads_the_metadata_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshots of all branches, and what these keep, are of one reading of the file; what a branch keeps stays."""
    for place in (table_module, expiry):
        monkeypatch.setattr(place, "to_dict", dict)
    read = Mock(side_effect=load_static_table)
    monkeypatch.setattr(table_module, "load_static_table", read)
    found = find_expiry(_table_of(tmp_path, 10), ExpiryPolicy(age_s=600), [])
    assert read.call_count == 1
    assert found is not None and found.snapshots == 4, "the branch and the tag without an end stay"
    lasting = _table_of(tmp_path, 10, properties={"history.expire.max-ref-age-ms": "5"})
    assert (found := find_expiry(lasting, ExpiryPolicy(age_s=600), [])) is not None and found.snapshots == 6


def test_expiry_keeps_what_a_job_of_flink_has_to_find_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its newest commit holds up the task, not what goes with a sink's commits: these may be one a second."""
    for place in (table_module, expiry):
        monkeypatch.setattr(place, "to_dict", dict)
    monkeypatch.setattr(expiry, "_now_ms", lambda: 2000 * S)
    monkeypatch.setattr(expiry, "read_reader_positions", lambda *_: [])
    table = _table_of(tmp_path, 10, {4: {"flink.max-committed-checkpoint-id": "7"}})
    found = find_expiry(table, ExpiryPolicy(age_s=600), [])
    assert found is not None and (found.older_than_ms, found.snapshots) == (4 * S, 1)
    assert expiry.find_needed_since_ms(Mock(), ["db.offsets"], table) == 2000 * S


@pytest.mark.parametrize("text", ["false", "FALSE", "no"])
def test_a_table_whose_files_stay_is_known_as_iceberg_knows_it(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`gc.enabled` in any case, and any other word than `true`, keeps files: expiry leaves the table alone."""
    monkeypatch.setattr(expiry, "to_dict", lambda _: {"gc.enabled": text})
    assert find_expiry(_table_of(tmp_path, 3), ExpiryPolicy(), []) is None


# --- whose metadata files there are -----------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_metadata_files_of_another_table_at_the_same_place_are_known(packed: bool, tmp_path: Path) -> None:
    """A table that was renamed, and one that got its former name and place, are told apart by the id in their files."""
    table: Any = _table_of(tmp_path, 1)
    own, other, gone = (str(tmp_path / f"{name}.metadata.json") for name in ("own", "other", "gone"))
    for path, uuid in ((own, table.uuid), (other, "00000000-0000-0000-0000-000000000002")):
        text = json.dumps({"properties": {"a": "x" * 9000}, "table-uuid": uuid}).encode()
        Path(path).write_bytes(gzip.compress(text) if packed else text)
    table.io_properties = dict
    assert find_metadata_of_others(table, [own, gone, own]) is None
    assert find_metadata_of_others(table, [own, other]) == other


def test_a_foreign_metadata_file_is_found_among_any_number() -> None:
    """However many files of its own the table has left, one in another folder is noticed."""
    found = MetadataFiles(frozenset({"/a/metadata"}))
    for number in range(3):
        found.accept(f"file:/a/metadata/{number}.metadata.json")
    found.accept("file:/a/b/metadata/1.gz.metadata.json")
    found.accept("file:/a/b/data/1.parquet")
    assert (len(found.beside), found.elsewhere) == (3, "file:/a/b/metadata/1.gz.metadata.json")


@pytest.mark.parametrize("name", ["plain", "c#", "a?b", "a%20b", "a b"])
def test_metadata_files_are_known_below_any_name(name: str, tmp_path: Path) -> None:
    """Listings have a scheme, and no part of a path is a query or a fragment: own files are none of another table."""
    table: Any = _table_of(tmp_path, 1)
    location = str(tmp_path / name)
    own, other = (f"{location}/metadata/{one}.metadata.json" for one in ("own", "other"))
    Path(own).parent.mkdir(parents=True)
    for path, uuid in ((own, table.uuid), (other, "00000000-0000-0000-0000-000000000002")):
        Path(path).write_text(json.dumps({"table-uuid": uuid}))
    table.io_properties = dict
    found = MetadataFiles(frozenset(map(plain_path, metadata_folders(location, {}))))
    for path in (own, other):
        found.accept(f"file:{path}")
    assert (len(found.beside), found.elsewhere) == (2, None)
    assert find_metadata_of_others(table, found.beside) == f"file:{other}"
    assert plain_path(f"s3://lake/{name}/x") == plain_path(f"s3a://lake/{name}/x") == f"/{name}/x"


@pytest.mark.parametrize("partition", ["region=[/eu]", "region=[eu]", "region=:eu:"])
def test_a_partition_is_shown_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, partition: str
) -> None:
    """Its value is any text of a row, and no markup."""
    monkeypatch.setenv("COLUMNS", "200")
    print_reports([TableReport("t", partitions=[PartitionFiles(partition)])], executed=False, as_json=False)
    assert partition in capsys.readouterr().out


# --- whose settings a table has ---------------------------------------------------------------------------------------


def test_a_table_of_another_namespace_has_settings_by_its_full_name_alone() -> None:
    """`orders` in settings is the table of the sink's own namespace: one of that name in another has neither its branch
    nor its policy.
    """
    own = {f"orders{name}": value for name, value in ((".commit-branch", "audit"), (".maintenance.enabled", "true"))}
    own |= {"other.users.commit-branch": "wap", "users.commit-branch": "audit"}
    given = {"bootstrap.servers": "h:1", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
    settings = load([], {**given, **{f"iceberg.table.{key}": value for key, value in own.items()}}, {}).table
    followed = dict[str, str]()
    catalog: Any = SimpleNamespace(
        full_name=lambda name: name if "." in name else f"default.{name}",
        load=lambda name: SimpleNamespace(follow=partial(followed.__setitem__, name)),
    )
    subject = Maintainer(Mock(), catalog, settings, "s", Mock())
    for name in ("default.orders", "other.orders", "other.users"):
        subject.load(name)
    assert followed == {"default.orders": "audit", "other.orders": "main", "other.users": "wap"}
    assert [subject.policy_of(name).enabled for name in ("default.orders", "other.orders")] == ["true", "auto"]
