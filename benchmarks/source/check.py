"""topic -> verdict: compare the envelopes of an initial read with the table, in a process of its own and not timed.

Run as `python -m benchmarks.source.check JOB.json` with warehouse, bootstrap and result. The topic is right when each
record is a read (`r`) without before-image under its own key, and when the after-images are the table's rows by count
and hash sums (`benchmarks.check`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.check import sums_of
from benchmarks.generate import VALUE_COLUMNS
from benchmarks.session import open_session, qualified, sql_type
from benchmarks.source.plan import PUBLISHED, TOPIC, table_name


def main(job_file: str) -> None:
    """Compare, and write null or the fault to the job's result file."""
    job = json.loads(Path(job_file).read_text())
    spark = open_session("benchmark source check", Path(job["warehouse"]))
    options = {"kafka.bootstrap.servers": job["bootstrap"], "subscribe": TOPIC, "startingOffsets": "earliest"}
    image = ", ".join(f"`{name}`: {sql_type(name)}" for name in VALUE_COLUMNS)
    shape = f"before STRUCT<id: BIGINT>, after STRUCT<{image}>, op STRING"
    records = spark.read.format("kafka").options(**options).load()
    parsed = records.selectExpr(
        f"from_json(CAST(value AS STRING), '{shape}') AS e", "from_json(CAST(key AS STRING), 'id BIGINT').id AS key"
    )
    good = parsed.where("e.op = 'r' AND e.before IS NULL AND e.after.id = key")
    table = spark.table(qualified(table_name(PUBLISHED)))
    right, actual = sums_of(table, table.schema), sums_of(good.selectExpr("e.after.*"), table.schema)
    Path(job["result"]).write_text(json.dumps(fault_of(right, actual)))
    spark.stop()


def fault_of(right: dict[str, Any], actual: dict[str, Any]) -> str | None:
    """Which sums differ; None when none do."""
    wrong = [name for name, value in right.items() if actual[name] != value]
    return f"{actual['count']} rows for {right['count']}; differs in {', '.join(wrong)}" if wrong else None


if __name__ == "__main__":
    main(sys.argv[1])
