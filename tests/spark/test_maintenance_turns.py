"""Who maintains when: quiet tables, several maintainers, lost races, tables that fail or go, and the command."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import attrs
import pytest
import structlog
from pyspark.sql import SparkSession

from connector.cli.maintain.rounds import Round, do_round
from connector.errors import CommitRefused, ConfigError, RetriableError
from connector.iceberg.commit.settlement import settle_commits
from connector.iceberg.java import map_java_errors
from connector.iceberg.state.offset_rows import MAINTAINER, OffsetRows
from connector.maintenance.lease_rules import Lease
from connector.maintenance.tasks import CONVERT, MANIFESTS, REWRITE
from connector.settings import load
from connector.settings.iceberg.maintenance.policies import (
    ConvertPolicy,
    ExpiryPolicy,
    MaintenancePolicy,
    MaintenanceSettings,
    ManifestPolicy,
    RewritePolicy,
)
from tests.histories.workshop import OFFSETS, Workshop, disturb_tasks
from tests.histories.written_tables import check_rows, summary_of
from tests.runs.host import Host

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One for all tests; each has a table of its own."""
    return Workshop(spark, tmp_path_factory.mktemp("in_turns"), "in_turns")


def test_a_quiet_table_is_left_alone(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a table is maintained nothing is committed any more, whatever time goes by: neither there nor of leases."""
    written = workshop.written(8)
    maintainer, table = workshop.maintainer(), written.table
    rules = MaintenancePolicy(
        convert=ConvertPolicy(files=1),
        rewrite=RewritePolicy(files=1, interval_s=1, min_input_files=2),
        manifests=ManifestPolicy(count=1),
        expire=ExpiryPolicy(interval_s=1),
    )
    maintainer.settings = attrs.evolve(workshop.settings, maintenance=MaintenanceSettings(rules))

    def look() -> list[str]:
        table.refresh()
        maintainer.run(table, tuple(maintainer.find_due(table, maintainer.read_state(table))))
        table.refresh()
        offsets = workshop.catalog.load(OFFSETS)
        assert offsets is not None
        return [str(each.java.operations().current().metadataFileLocation()) for each in (table, offsets)]

    began = table.snapshot_id
    maintained = next(now for before, now in pairwise(look() for _ in range(5)) if before == now)
    assert table.snapshot_id != began
    later_ms = time.time_ns() // 1_000_000 + 24 * 3600 * 1000
    monkeypatch.setattr("connector.maintenance.maintainer._now_ms", lambda: later_ms)
    assert look() == maintained


def test_one_maintainer_at_a_time(workshop: Workshop) -> None:
    """Who comes second finds the table maintained; two that reach for a lease at once do not both get it."""
    written = workshop.written(4)
    first, second = workshop.maintainer("first"), workshop.maintainer("second")
    name = written.table.name
    with first.leases.hold(name) as held:
        assert held
        assert second.run(written.table, [CONVERT]) == []
        assert int(summary_of(written)["total-equality-deletes"]) > 0
    assert second.leases.take(name)
    assert not first.leases.take(name)
    second.leases.release(name)
    first.leases.hand_over(name, CONVERT)
    assert second.leases.read(name).handed == (CONVERT,)
    second.leases.accept(name, CONVERT)
    assert first.leases.read(name).handed == ()


def test_rows_of_two_processes_that_read_the_same(workshop: Workshop) -> None:
    """A row that another process of the same name stored since is not overwritten."""
    first, second = (OffsetRows(workshop.catalog, OFFSETS, "raced", MAINTAINER) for _ in range(2))
    first.put(None, {"t": Lease("first").json()})
    with pytest.raises(CommitRefused):
        second.put(None, {"t": Lease("second").json()})
    second.reload()
    assert second.by_table == {"t": Lease("first").json()}


def test_a_commit_that_is_not_accepted(spark: SparkSession, workshop: Workshop) -> None:
    """Iceberg's own code is refused a commit by its summary, as by a conflict, and the table stays as it is."""
    written = workshop.written(5)
    before = written.table.snapshot_id
    with (
        pytest.raises(RetriableError),
        map_java_errors("a test"),
        settle_commits(written.table, "a test", lambda made, _: "deleted-records" not in made.summary) as java,
    ):
        java.newDelete().deleteFromRowFilter(written.table.expression("true")).commit()
    written.table.refresh()
    assert written.table.snapshot_id == before
    check_rows(spark, workshop.lake, written)


def test_a_lost_race_is_handed_over(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that lost three times is left for the sink, and the next task is done."""
    written = workshop.written(6)

    def lose(*_: object, **__: object) -> None:
        raise CommitRefused("another writer committed first")

    monkeypatch.setattr("connector.maintenance.maintainer.convert_deletes", lose)
    maintainer = workshop.maintainer()
    convert, manifests = maintainer.run(written.table, [CONVERT, MANIFESTS])
    assert convert.failure and not manifests.failure
    assert maintainer.leases.read(written.table.name).handed == (CONVERT,)


def test_manifests_that_another_writer_replaced_are_merged_anew(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are deleted meanwhile write a manifest anew: the merging lost, and is done again at once."""
    written = workshop.written(22)
    table, gone = written.case.table, sorted(written.model)[::2]

    def delete() -> None:
        workshop.spark.sql(f"DELETE FROM {table} WHERE k IN ({', '.join(map(str, gone))})")
        written.model = {key: value for key, value in written.model.items() if key not in gone}

    disturb_tasks(monkeypatch, delete)
    with structlog.testing.capture_logs() as lines:
        (outcome,) = workshop.maintainer().run(written.table, [MANIFESTS])
    assert outcome.failure is None
    assert any(line["event"] == "another writer committed first" for line in lines)
    check_rows(workshop.spark, workshop.lake, written)


@pytest.mark.thorough
def test_the_command(workshop: Workshop, host: Host) -> None:
    """`icebridge maintain` shows what there is to do and changes nothing; with --execute it is done."""
    written = workshop.written(7)
    file, name = str(workshop.home / "sink.properties"), written.case.name

    def told(*arguments: str) -> dict[str, Any]:
        said = host.call("maintain", "--json", "--table", name, *arguments, file)
        assert said.code == 0, said.log
        return json.loads(said.out.strip().splitlines()[-1])["tables"][written.table.name]

    shown = told()
    # Snapshots of the last minutes may be read by a batch.
    assert shown["due"].keys() == {CONVERT, REWRITE, MANIFESTS}
    assert shown["done"] == {}
    assert sum(each["equality_deletes"] for each in shown["partitions"]) == shown["state"]["equality_deletes"] > 0
    done = told("--task", "convert,rewrite", "--execute")
    assert {task: one["failure"] for task, one in done["done"].items()} == {CONVERT: None, REWRITE: None}
    assert done["state"]["equality_deletes"] == 0
    check_rows(workshop.spark, workshop.lake, written)


@pytest.mark.thorough
def test_a_table_that_fails_holds_up_no_other(workshop: Workshop, host: Host) -> None:
    """Of two tables one cannot be read: the other is maintained, what failed is told, and so does the exit code."""
    broken, written = (workshop.written(seed) for seed in (20, 21))
    for file in (workshop.home / "default" / broken.case.name / "metadata").glob("snap-*"):
        file.unlink()
    names = [part for one in (broken, written) for part in ("--table", one.case.name)]
    said = host.call(
        "maintain", "--json", *names, "--task", "convert", "--execute", str(workshop.home / "sink.properties")
    )
    assert said.code == 1, said.log
    told = json.loads(said.out.strip().splitlines()[-1])["tables"]
    assert told[broken.table.name]["failure"] or told[broken.table.name]["done"][CONVERT]["failure"]
    assert told[written.table.name]["done"][CONVERT]["failure"] is None
    assert told[written.table.name]["state"]["equality_deletes"] == 0
    check_rows(workshop.spark, workshop.lake, written)


def test_a_table_that_goes_between_two_rounds_holds_up_no_other(workshop: Workshop) -> None:
    """Named with others, and dropped: it is told, and the others are done; in the first round it is a mistake."""
    written = workshop.written(23)
    settings = load([workshop.home / "sink.properties"])
    asked = Round(("no_such_table", written.case.name), (CONVERT,), execute=True)
    with pytest.raises(ConfigError, match="no_such_table"):
        list(do_round(settings, workshop.catalog, workshop.maintainer(), asked, first=True))
    gone, done = do_round(settings, workshop.catalog, workshop.maintainer(), asked, first=False)
    assert gone.failure is not None and not done.failures
    written.table.refresh()
    assert summary_of(written)["total-equality-deletes"] == "0"
