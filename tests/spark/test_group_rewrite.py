"""Small files of tables with times of day and nanoseconds -> fewer files of ours with the same rows, beside a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.catalog.snapshot_schema import load_snapshot_schema
from connector.iceberg.java import jvm
from connector.iceberg.read.all_columns import readable_schema
from connector.iceberg.read.scan_planning import plan_files
from connector.iceberg.read.table_reader import MAINTAINING, TableReader, release_reads
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.maintenance import group_rewrite
from connector.maintenance.conversion.conversion import convert_deletes
from connector.maintenance.spark_actions import rewrite_data_files
from connector.maintenance.table_state import TableState
from connector.maintenance.tasks import CONVERT, REWRITE
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.harness.tiers import crossed
from tests.histories import maintained
from tests.histories.maintained import MaintainedCatalog, MaintainedTable
from tests.histories.workshop import Workshop

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("n", pa.int64()),
        ("t", pa.time64("us")),
        ("u", pa.uuid()),
        ("l", pa.list_(pa.field("element", pa.struct([("t", pa.time64("us")), ("x", pa.string())])))),
    ]
)
COLUMNS_BY_VERSION = {2: COLUMNS, 3: COLUMNS.append(pa.field("s", pa.timestamp("ns")))}
PARTED = (PartitionTerm("p", "identity"),)
Row = tuple[Any, ...]


def _row(key: int, n: int) -> Row:
    inner = None if key % 3 == 0 else [{"t": n, "x": f"x{n}"}, None]
    row = key, f"p{key % 2}", n, None if key % 4 == 0 else n * 1_000_001, bytes([key]) * 16, inner, 10**18 + n
    return row[: len(maintained.COLUMNS)]


def _made(
    workshop: Workshop, name: str, monkeypatch: pytest.MonkeyPatch, version: int, by: Sequence[PartitionTerm] = ()
) -> MaintainedTable:
    columns = COLUMNS_BY_VERSION[version]
    monkeypatch.setattr(maintained, "COLUMNS", columns)
    schema = build_table_schema(columns, ("id",), frozenset(), nanoseconds=version == 3)
    made = workshop.catalog.create(name, schema, tuple(by), {"format-version": str(version)})
    workshop.catalog.ensure_delete_spec(made)
    return MaintainedTable(
        MaintainedCatalog(workshop.spark, workshop.name, workshop.catalog, workshop.lake), name, made
    )


def _rows(table: MaintainedTable) -> list[Mapping[str, Any]]:
    return sorted(table.catalog.lake.rows(table.name), key=lambda row: int(row["id"]))


def _unfinished(table: MaintainedTable) -> set[str]:
    """Names of data files of maintenance's that the table does not have."""
    folder = Path(str(table.table.java.location()).removeprefix("file:"))
    there = {file.name for file in folder.rglob("maintain*.parquet") if not file.stem.endswith("-deletes")}
    return there - {Path(str(file.location())).name for files in table.files() for file in files}


def _upsert(table: MaintainedTable, *rows: Row) -> None:
    table.batch(rows, [row[0] for row in rows])


@pytest.mark.parametrize(("version", "by"), crossed((2, 3), ((), PARTED), [(2, PARTED), (3, ())]))
def test_files_are_merged_and_rows_stay(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    by: Sequence[PartitionTerm],
) -> None:
    """With deletes by key and by position, nulls, values that Spark does not carry; files of format 3 keep row ids."""
    workshop = Workshop(spark, tmp_path, f"groups{version}{len(by)}")
    table = _made(workshop, "t", monkeypatch, version, by)
    for number in range(6):
        _upsert(table, *(_row(key, 10 * number + key) for key in range(number, number + 4)))
    table.batch((), [2])
    assert workshop.maintainer().run(table.table, [CONVERT])[0].failure is None
    _upsert(table, _row(4, 99))
    before, ids = _rows(table), _row_ids(table) if version == 3 else {}
    assert len(before) == 8 and isinstance(before[1]["t"], time)
    (done,) = workshop.maintainer().run(table.table, [REWRITE])
    assert done.failure is None
    assert done.counts["removed"] >= 7 and done.counts["added"] == 1 + len(by)
    assert _rows(table) == before
    if version == 3:
        assert _row_ids(table) == ids
    data, deletes = table.files()
    assert len(data) == 1 + len(by) and not [one for one in deletes if one.referencedDataFile() is not None]
    _upsert(table, _row(4, 100), _row(50, 7))
    assert {row["id"]: row["n"] for row in _rows(table)} == {**{row["id"]: row["n"] for row in before}, 4: 100, 50: 7}


def _row_ids(table: MaintainedTable) -> dict[int, int]:
    """The id of each row, as the reader of changes tells it."""
    table.table.refresh()
    newest = table.table.snapshot_id
    assert newest is not None
    spark = table.catalog.spark
    schema = readable_schema(load_snapshot_schema(spark, table.table, newest).json)
    rows = TableReader(spark, table.table, schema).read_live_rows(plan_files(spark, table.table, newest), lineage=True)
    return {row["c0"]: row["row_id"] for row in rows.collect()}


@pytest.mark.parametrize("act", ["upsert", "convert"])
def test_what_a_sink_commits_meanwhile_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    """Deletes by key that come behind the plan apply to merged files; a conversion has the merge begin anew."""
    workshop = Workshop(spark, tmp_path, f"beside{act}")
    table = _made(workshop, "t", monkeypatch, 2)
    for number in range(4):
        _upsert(table, _row(number, number), _row(7, number))
    calls, commit = [0], group_rewrite._GroupRewrite._commit

    def interrupted(merge: Any, made: Any) -> None:
        calls[0] += 1
        if calls[0] == 1:
            if act == "upsert":
                _upsert(table, _row(7, 70), _row(1, 71))
            else:
                other = workshop.catalog.load("t")
                assert other is not None
                assert convert_deletes(spark, other, "other").converted
        commit(merge, made)

    monkeypatch.setattr(group_rewrite._GroupRewrite, "_commit", interrupted)
    (done,) = workshop.maintainer().run(table.table, [REWRITE])
    assert done.failure is None and done.counts["removed"] >= 4
    assert calls == ([1] if act == "upsert" else [2])
    wanted = {0: 0, 1: 1, 2: 2, 3: 3, 7: 3} | ({7: 70, 1: 71} if act == "upsert" else {})
    assert {row["id"]: row["n"] for row in _rows(table)} == wanted
    assert not _unfinished(table), "what a refused commit has written is deleted"


def test_a_group_that_cannot_be_read_keeps_no_other_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Group by group what can be merged is merged; all at once nothing is, and nothing is left behind."""
    workshop = Workshop(spark, tmp_path, "unreadable")
    table = _made(workshop, "t", monkeypatch, 2, PARTED)
    for number in range(6):
        table.batch([_row(2 * number, number), _row(2 * number + 1, number)])
    data, _ = table.files()
    lost = next(str(file.location()) for file in data if "p=p1" in str(file.location()))
    Path(lost.removeprefix("file:")).unlink()
    policy, state = workshop.maintainer().policy_of(table.table.name).rewrite, TableState(data_files=12)
    with pytest.raises(FatalError, match="a file is gone while it is needed"):
        rewrite_data_files(spark, table.table, policy, state, "s")
    assert not _unfinished(table)
    done = rewrite_data_files(spark, table.table, policy, state, "s", by_groups=True)
    assert (done["removed"], done["added"], done["failed"]) == (6, 1, 6)
    data, _ = table.files()
    assert len(data) == 7


def test_a_table_whose_rows_are_all_deleted_has_no_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of files without live rows nothing is written."""
    workshop = Workshop(spark, tmp_path, "emptied")
    table = _made(workshop, "t", monkeypatch, 3)
    for number in range(5):
        table.batch([_row(number, number)])
    table.batch((), range(5))
    assert [one.failure for one in workshop.maintainer().run(table.table, [CONVERT, REWRITE])] == [None, None]
    assert (table.files(), _rows(table)) == (([], []), [])


def test_reads_are_released_by_what_they_are_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that forgets its reads at its end leaves those of maintenance, which may be under way beside it."""
    table = _made(Workshop(spark, tmp_path, "staged"), "t", monkeypatch, 2)
    table.batch([_row(1, 1)])
    newest = table.table.snapshot_id
    assert newest is not None
    schema, tasks = readable_schema(table.table.schema_json), plan_files(spark, table.table, newest)
    rows = TableReader(spark, table.table, schema, MAINTAINING).read_live_rows(tasks)
    release_reads(spark, table.table)
    assert [row["c0"] for row in rows.collect()] == [1]
    manager = jvm(spark).org.apache.iceberg.spark.ScanTaskSetManager.get()
    assert len(manager.fetchSetIds(table.table.java)) == 1
    release_reads(spark, table.table, MAINTAINING)
    assert not len(manager.fetchSetIds(table.table.java))
