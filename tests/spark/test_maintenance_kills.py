"""A kill in each task of maintenance, right before its commit and right after -> the same rows; leftovers go."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from connector.maintenance.tasks import CONVERT, EXPIRE, MANIFESTS, REWRITE
from connector.settings.iceberg.partition_spec import PartitionTerm
from tests.spark.test_key_types import Written, values_by_iceberg, values_by_spark
from tests.tiers import crossed
from tests.workshop import AFTER, BEFORE, Workshop, cut_commits

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
    crossed(TASKS, (BEFORE, AFTER), [(CONVERT, BEFORE), (EXPIRE, AFTER)]),
)
def test_what_a_killed_run_leaves_goes_with_the_next(workshop: Workshop, task: str, when: str) -> None:
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
