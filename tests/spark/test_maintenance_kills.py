"""A kill in each task of maintenance, right before its commit and right after -> the same rows; leftovers go."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import attrs
import pytest
from pyspark.sql import SparkSession

from connector.maintenance.lease import LeaseTable
from connector.maintenance.tasks import CONVERT, EXPIRE, MANIFESTS, ORPHANS, REWRITE
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.harness.tiers import crossed, tiered
from tests.histories.workshop import AFTER, BEFORE, Workshop, cut_commits
from tests.histories.written_tables import Written, values_by_iceberg, values_by_spark
from tests.runs.processes import Sink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TASKS = (CONVERT, REWRITE, MANIFESTS, EXPIRE)


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One for all tests; each has a table of its own."""
    return Workshop(spark, tmp_path_factory.mktemp("cut_short"), "cut_short")


def _check_rows(workshop: Workshop, written: Written) -> None:
    """Spark and Iceberg's generic reader give the model's rows, equality deletes or none."""
    right = sorted(written.model.values())
    assert values_by_spark(workshop.spark, written.case) == right
    assert values_by_iceberg(workshop.spark, workshop.lake, written.case) == right


@pytest.mark.parametrize(
    ("task", "when"),
    crossed(TASKS, (BEFORE, AFTER), [(CONVERT, BEFORE)]),
)
def test_what_a_run_killed_in_the_middle_leaves_goes_with_the_next(workshop: Workshop, task: str, when: str) -> None:
    """Rows are the model's right after the cut and after the next run, which does the work and removes the rest."""
    seed = 2 * TASKS.index(task) + (when == AFTER)
    written = workshop.written(seed, 2 + seed % 2, PartitionTerm("p", "identity"))
    with pytest.MonkeyPatch.context() as patch:
        cut_commits(patch, when)
        (outcome,) = workshop.maintainer("killed", ago_s=600).run(written.table, [task])
        assert outcome.failure is not None
    _check_rows(workshop, written)
    left = workshop.unfinished(written)
    if task in (CONVERT, REWRITE):
        assert left or when == AFTER
    written.table.refresh()
    written.batch(dict.fromkeys(sorted(written.model)[::3]), Random(seed))
    (outcome,) = workshop.maintainer("next").run(written.table, [task])
    assert outcome.failure is None
    _check_rows(workshop, written)
    if task in (CONVERT, REWRITE):
        assert workshop.unfinished(written) == set()
    leases = workshop.maintainer("later").leases
    assert leases.read(written.table.name).left == ()
    workshop.maintainer("later").run(written.table, TASKS)
    _check_rows(workshop, written)


def test_files_of_a_run_that_may_still_commit_stay(workshop: Workshop) -> None:
    """As long as nothing was committed since the lease of a killed run ended its files stay: its commit may be on its
    way. It goes with the first run that finds a newer snapshot."""
    written = workshop.written(20)
    with pytest.MonkeyPatch.context() as patch:
        cut_commits(patch, BEFORE)
        workshop.maintainer("killed", ago_s=60).run(written.table, [CONVERT])
    left = workshop.unfinished(written)
    assert left
    later = workshop.maintainer("later", ago_s=-120)
    later.run(written.table, [CONVERT])
    assert left <= workshop.unfinished(written)
    leases = later.leases
    assert [one.until_ms > 0 for one in leases.read(written.table.name).left] == [True]
    _check_rows(workshop, written)


def test_a_run_that_lost_its_lease_commits_nothing(workshop: Workshop) -> None:
    """What a run writes whose lease has ended is not committed: another run may have removed its files by then."""
    written = workshop.written(21)
    before = written.table.snapshot_id
    maintainer = workshop.maintainer("slow")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("connector.maintenance.lease.MaintenanceRun.is_held", lambda _: False)
        outcomes = maintainer.run(written.table, [CONVERT, REWRITE])
    written.table.refresh()
    assert written.table.snapshot_id == before
    assert all(one.failure or one.counts.get("failed") for one in outcomes)
    _check_rows(workshop, written)


def _date_back(leases: LeaseTable, table: str) -> None:
    """Have it be ten minutes ago that a killed run had its lease."""
    lease = leases.read(table)
    leases._rows.put(None, {table: attrs.evolve(lease, until_ms=lease.until_ms - 600_000).json()})


def _folder(workshop: Workshop, table: str, pattern: str) -> Callable[[], int]:
    root = workshop.home / "default" / table
    return lambda: sum(1 for _ in root.glob(pattern))


# What must be seen of a run before it is killed.
SIGNS: dict[str, str] = {
    CONVERT: "data/maintain-*/**/*.p*",
    REWRITE: "data/maintain-*/**/*.parquet",
    MANIFESTS: "metadata/optimized-m-*",
    EXPIRE: "metadata/snap-*",
    ORPHANS: "data/maintain-old-*",
}


def _age_snapshots(workshop: Workshop, written: Written) -> None:
    """Have all snapshots be an hour older: those of the last minutes do not expire."""
    folder = workshop.home / "default" / written.case.name / "metadata"
    file = max(folder.glob("v*.metadata.json"), key=lambda one: int(one.name.removeprefix("v").partition(".")[0]))
    told = json.loads(file.read_bytes())
    for one in (*told["snapshots"], *told["snapshot-log"], *told["metadata-log"]):
        one["timestamp-ms"] -= 3_600_000
    (folder / f".{file.name}.crc").unlink(missing_ok=True)
    file.write_text(json.dumps(told))


@pytest.mark.thorough
@pytest.mark.parametrize("task", tiered(SIGNS, []))
def test_killed_in_the_middle(workshop: Workshop, task: str) -> None:
    """`icebridge maintain` ends by SIGKILL while it works: the rows are right, and the next run ends the work."""
    seed = 30 + list(SIGNS).index(task)
    written = workshop.written(seed, 3, PartitionTerm("p", "identity"))
    written.table.java.updateProperties().set("history.expire.max-snapshot-age-ms", "1").commit()
    for number in range(200 if task == ORPHANS else 0):
        old = workshop.home / "default" / written.case.name / "data" / f"maintain-old-{number}.parquet"
        old.write_bytes(b"left behind")
        os.utime(old, (0, 0))
    for number in range(12 if task == EXPIRE else 0):
        written.batch(dict.fromkeys(sorted(written.model)[number::12], 500 + number), Random(number))
    if task == EXPIRE:
        _age_snapshots(workshop, written)
    extra = workshop.home / f"killed-{task}.properties"
    extra.write_text((workshop.home / "sink.properties").read_text() + "spark.master=local[2]\n")
    count = _folder(workshop, written.case.name, SIGNS[task])
    there = count()
    process = Sink(extra, ("--execute", "--task", task, "--table", written.case.name), command="maintain")
    seen = process.wait_until(lambda: count() != there, timeout_s=180, step_s=0.002)
    alive = process.process.poll() is None
    os.killpg(process.process.pid, signal.SIGKILL)
    process.process.wait()
    assert seen and alive, process.text()[-4000:]
    written.table.refresh()
    _check_rows(workshop, written)
    written.batch(dict.fromkeys(sorted(written.model)[::3]), Random(seed))
    after = workshop.maintainer("next")
    _date_back(after.leases, written.table.name)
    outcomes = after.run(written.table, [task, CONVERT])
    assert [one.failure for one in outcomes] == [None] * len(outcomes)
    written.batch({key: 77 + key for key in range(3)}, Random(seed))
    after.run(written.table, [CONVERT])
    _check_rows(workshop, written)
    assert {Path(name).name for name in workshop.unfinished(written)} == set()
