"""What others do to a table while a task of maintenance is about to commit -> their rows, and the next run is right."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from attrs import define
from pyspark.sql import SparkSession

from connector.iceberg.commit.last_commit import LastCommit, find_last_commit
from connector.iceberg.java import jvm
from connector.maintenance.tasks import CONVERT, EXPIRE, MANIFESTS, ORPHANS, REWRITE
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.harness.tiers import crossed
from tests.histories.workshop import Workshop, disturb_tasks
from tests.histories.written_tables import Written, summary_of, values_by_iceberg, values_by_spark
from tests.runs.processes import catalog

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TASKS = (CONVERT, REWRITE, MANIFESTS, EXPIRE, ORPHANS)


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One for all tests; each has a table of its own. Of a catalog of folders a table that is dropped comes back with
    the next commit, whoever makes it.
    """
    home = tmp_path_factory.mktemp("disturbed")
    return Workshop(spark, home, "disturbed", catalog(home))


@define(eq=False)
class Scene:
    """A table before its newest batch and after it."""

    workshop: Workshop
    written: Written
    earlier: int
    rows_earlier: dict[Any, int]

    def sql(self, text: str) -> None:
        """Run SQL; `{t}` is the table."""
        self.workshop.spark.sql(text.format(t=self.written.case.table))

    def java(self) -> Any:
        """The table as another process has it."""
        return self.workshop.lake.java(self.written.case.name)


def _roll_back(scene: Scene) -> None:
    scene.java().manageSnapshots().rollbackTo(scene.earlier).commit()
    scene.written.model = dict(scene.rows_earlier)


def _change_columns(scene: Scene) -> None:
    scene.sql("ALTER TABLE {t} ADD COLUMN x INT")
    scene.sql("ALTER TABLE {t} RENAME COLUMN p TO part")
    scene.sql("ALTER TABLE {t} DROP COLUMN x")


def _change_spec(scene: Scene) -> None:
    terms = jvm(scene.workshop.spark).org.apache.iceberg.expressions.Expressions
    scene.java().updateSpec().addField(terms.bucket("k", 3)).commit()


def _tag(scene: Scene) -> None:
    scene.java().manageSnapshots().createTag("kept", scene.earlier).createBranch("aside", scene.earlier).commit()


def _empty(scene: Scene) -> None:
    scene.sql("DELETE FROM {t}")
    scene.written.model = {}


def _replace(scene: Scene) -> None:
    scene.sql(
        "CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT CAST(1 AS BIGINT) AS k, 0 AS p, CAST(5 AS BIGINT) AS v"
    )
    scene.written.model = {1: 5}


def _upgrade(scene: Scene) -> None:
    scene.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")


def _drop(scene: Scene) -> None:
    scene.sql("DROP TABLE {t} PURGE")


def _make_anew(scene: Scene) -> None:
    _drop(scene)
    scene.sql("CREATE TABLE {t} (k BIGINT, p INT, v BIGINT) USING iceberg TBLPROPERTIES ('format-version'='3')")
    scene.sql("INSERT INTO {t} VALUES (7, 0, 70)")
    scene.written.model = {7: 70}


FAULTS: dict[str, Callable[[Scene], None]] = {
    "rolled back": _roll_back,
    "columns changed": _change_columns,
    "partitioned anew": _change_spec,
    "upgraded": _upgrade,
    "tagged and branched": _tag,
    "emptied": _empty,
    "replaced": _replace,
    "dropped": _drop,
    "made anew": _make_anew,
}


LASTING = ("rolled back", "columns changed", "partitioned anew", "upgraded", "tagged and branched")
"""After these the sink writes on."""


def _scene(workshop: Workshop, seed: int, version: int) -> Scene:
    written = workshop.written(seed, version, PartitionTerm("p", "identity"))
    assert written.table.snapshot_id is not None
    earlier, rows = written.table.snapshot_id, dict(written.model)
    written.batch({key: None if turn % 2 else 9_000 + turn for turn, key in enumerate(sorted(rows)[::2])}, Random(seed))
    return Scene(workshop, written, earlier, rows)


def _check_rows(scene: Scene) -> None:
    right = sorted(scene.written.model.values())
    assert values_by_spark(scene.workshop.spark, scene.written.case) == right
    assert values_by_iceberg(scene.workshop.spark, scene.workshop.lake, scene.written.case) == right


@pytest.mark.parametrize(("task", "fault"), crossed(TASKS, tuple(FAULTS), [(CONVERT, "rolled back")]))
def test_what_others_do_meanwhile(workshop: Workshop, task: str, fault: str) -> None:
    """Whatever becomes of the task, the table is as the others left it; a run after it does the work."""
    seed = 50 + TASKS.index(task) * len(FAULTS) + list(FAULTS).index(fault)
    scene = _scene(workshop, seed, 2 if fault == "upgraded" else 2 + seed % 2)
    written, done = scene.written, list[str]()

    def disturb() -> None:
        FAULTS[fault](scene)
        done.append(fault)

    with pytest.MonkeyPatch.context() as patch:
        disturb_tasks(patch, disturb)
        outcomes = workshop.maintainer("disturbed").run(written.table, [task])
    assert [one.task for one in outcomes] == [task] and done == [fault]
    if fault == "dropped":
        assert written.case.name not in workshop.lake.names()
        assert workshop.maintainer("next").load(written.table.name) is None
        return
    _check_rows(scene)
    _check_next_run(scene, workshop)
    if fault == "tagged and branched":
        for name in ("kept", "aside"):
            found = workshop.spark.sql(f"SELECT v FROM {written.case.table} VERSION AS OF '{name}'").collect()
            assert sorted(row[0] for row in found) == sorted(scene.rows_earlier.values())
    if fault in LASTING:
        _check_next_batches(scene, workshop)


def _check_next_run(scene: Scene, workshop: Workshop) -> None:
    """Another process maintains the table, which may be another one by now."""
    maintainer = workshop.maintainer("next")
    table = maintainer.load(scene.written.table.name)
    assert table is not None
    outcomes = maintainer.run(table, [CONVERT, REWRITE, MANIFESTS, EXPIRE])
    assert [one.failure for one in outcomes] == [None] * len(outcomes)
    assert dict(table.java.currentSnapshot().summary()).get("total-equality-deletes", "0") == "0"
    _check_rows(scene)


def _check_next_batches(scene: Scene, workshop: Workshop) -> None:
    """The sink writes on, and what it deletes is converted."""
    written = scene.written
    written.table.refresh()
    written.stored = find_last_commit(written.table, "test", LastCommit())
    written.batch(dict.fromkeys(sorted(written.model)[::3]), Random(1))
    _check_rows(scene)
    (outcome,) = workshop.maintainer("last").run(written.table, [CONVERT])
    assert outcome.failure is None
    assert summary_of(written)["total-equality-deletes"] == "0"
    _check_rows(scene)
