"""tables -> seconds: the changes of one snapshot, ours and by Spark's changelog view, in one session; and idle polls.

Run as `python -m benchmarks.source.changes JOB.json` with warehouse, bootstrap, rows, names of cases, publish, idle and
result. Each contender runs once to warm up, and what that gave is compared with what the update is known to have done;
then it runs some times into Spark's `noop` sink, which takes every row and keeps none.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from benchmarks.generate import VALUE_COLUMNS
from benchmarks.measure import TreeSampler
from benchmarks.session import CATALOG, open_session
from benchmarks.source.idle import measure_idle
from benchmarks.source.plan import LARGER, PUBLISHED, ROUNDS, VIEW_ROUNDS, SourceCase, source_cases, table_name
from benchmarks.source.tables import expected, make, make_base, share
from connector.errors import ConnectorError
from connector.iceberg.catalog.snapshot_schema import load_snapshot_schema
from connector.iceberg.read.table_reader import TableReader, release_reads
from connector.source.changes.row_key import KeyKind, RowKey
from connector.source.changes.snapshot_diff import read_changes
from connector.source.envelope.json_values import configure_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from connector.iceberg.catalog.table import Table

KEYS = RowKey(KeyKind.IDENTIFIERS, ("id",))
_VIEW = "seen"
_FLAT = (
    "inline(CASE op WHEN 'u' THEN array(named_struct('change', 'UPDATE_BEFORE', 'image', before), "
    "named_struct('change', 'UPDATE_AFTER', 'image', after)) "
    "WHEN 'd' THEN array(named_struct('change', 'DELETE', 'image', before)) "
    "ELSE array(named_struct('change', 'INSERT', 'image', after)) END)"
)
_FAILURES = (PySparkException, Py4JError, ConnectorError, OSError, ValueError, LookupError, AssertionError)
Span = tuple[float, float]


def main(job_file: str) -> None:
    """Do what the job wants and write its result file."""
    job = json.loads(Path(job_file).read_text())
    cases = [case for case in source_cases() if case.name in job["cases"]]
    spark = open_session("benchmark source", Path(job["warehouse"]))
    configure_session(spark)
    with TreeSampler(os.getpid(), None) as sampler:
        make_base(spark, job["rows"], LARGER if any(case.large for case in cases) else 1)
        if job["publish"]:
            share(spark, table_name(PUBLISHED), 2, job["rows"], {})
        results = {case.name: measured(spark, case, job["rows"]) for case in cases}
        idle = idle_polls(spark, job) if job["idle"] else None
    usage = sampler.usage()
    for figures in results.values():
        for spans in [figures[who] for who in ("ours", "view") if who in figures]:
            spans["cpu_s"] = [usage.cpu_between(*span)["tree"] for span in spans.pop("spans")]
    memory = {"jvm_bytes": usage.memory.jvm_bytes, "worker_bytes": usage.memory.worker_bytes}
    Path(job["result"]).write_text(json.dumps({"changes": results, "idle": idle, "memory": memory}))
    spark.stop()


def measured(spark: SparkSession, case: SourceCase, rows: int) -> dict[str, Any]:
    """The figures of one case; a failure is its `fault`."""
    try:
        table, snapshot_id = make(spark, case, rows)
        return _measured(spark, case, table, snapshot_id, rows)
    except _FAILURES as error:
        return {"fault": f"{type(error).__name__}: {str(error)[:500]}"}


def idle_polls(spark: SparkSession, job: dict[str, Any]) -> dict[str, Any]:
    """The figures of idle polls; a failure is their `fault`."""
    try:
        return measure_idle(spark, Path(job["warehouse"]), job["bootstrap"])
    except _FAILURES as error:
        return {"fault": f"source-idle: {type(error).__name__}: {str(error)[:500]}"}


def _changes(spark: SparkSession, table: Table, snapshot_id: int) -> DataFrame:
    reader = TableReader(spark, table, load_snapshot_schema(spark, table, snapshot_id))
    return read_changes(reader, snapshot_id, KEYS)


def _measured(spark: SparkSession, case: SourceCase, table: Table, snapshot_id: int, rows: int) -> dict[str, Any]:
    right = expected(spark, case, table, snapshot_id, rows).localCheckpoint()
    figures: dict[str, Any] = {"changes": right.count()}
    faults = {}
    first = _changes(spark, table, snapshot_id).selectExpr(_FLAT).selectExpr("change", "image.*")
    faults["ours"] = difference(right, first)
    release_reads(spark, table)
    figures["ours"] = timed(lambda: consume(_changes(spark, table, snapshot_id)), ROUNDS)
    release_reads(spark, table)
    if case.view:
        faults["view"] = difference(right, view(spark, case, table, snapshot_id))
        figures["view"] = timed(lambda: consume(view(spark, case, table, snapshot_id)), VIEW_ROUNDS)
        spark.catalog.dropTempView(_VIEW)
    wrong = [f"{who}: {fault}" for who, fault in faults.items() if fault]
    return figures | {"fault": "; ".join(wrong) or None}


def view(spark: SparkSession, case: SourceCase, table: Table, snapshot_id: int) -> DataFrame:
    """The same changes by Spark's procedure, with updates computed by the identifier column."""
    parent = int(table.java.snapshot(snapshot_id).parentId())
    spark.sql(
        f"CALL `{CATALOG}`.system.create_changelog_view(table => '{CATALOG}.{case.table}', "
        f"changelog_view => '{_VIEW}', "
        f"options => map('start-snapshot-id', '{parent}', 'end-snapshot-id', '{snapshot_id}'), "
        "identifier_columns => array('id'), compute_updates => true)"
    )
    return spark.table(_VIEW).selectExpr("_change_type AS change", *(f"`{name}`" for name in VALUE_COLUMNS))


def consume(frame: DataFrame) -> None:
    """Compute every row and keep none."""
    frame.write.format("noop").mode("overwrite").save()


def difference(right: DataFrame, found: DataFrame) -> str | None:
    """What is in one and not in the other, equal rows counted; None when nothing is."""
    found = found.localCheckpoint()
    missing, extra = right.exceptAll(found).count(), found.exceptAll(right).count()
    return f"{missing} changes missing, {extra} that are not right" if missing or extra else None


def timed(work: Callable[[], None], rounds: int) -> dict[str, Any]:
    """Seconds of each round, and from when to when it ran (monotonic)."""
    spans: list[Span] = []
    for _ in range(rounds):
        began = time.monotonic()
        work()
        spans.append((began, time.monotonic()))
    return {"seconds": [end - began for began, end in spans], "spans": spans}


if __name__ == "__main__":
    main(sys.argv[1])
