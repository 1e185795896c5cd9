"""range -> table: fill the big table before an upsert is measured, by Spark SQL and in one append.

Run as `python -m benchmarks.prefill JOB.json` with warehouse, tables ({name: table properties}) and rows. The
expressions say what `generate.prefilled_rows` says in numpy; the check of the final tables compares the two.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.generate import BASE_TS_NS, DATABASE, ENVELOPE_COLUMNS, STATUSES
from benchmarks.plan import UPSERT
from benchmarks.session import create_table, open_session, qualified, sql_type

_FILES = 4
_OLD_TS_NS = BASE_TS_NS - 1_000_000_000
_STATUS_LIST = ", ".join(f"'{status}'" for status in STATUSES)
EXPRESSIONS = {
    "id": "id",
    "quantity": "id % 50 + 1",
    "price": "(id % 10000) / 100.0D",
    "discount": "(id % 20) / 20.0D",
    "status": f"array({_STATUS_LIST})[int(id % {len(STATUSES)})]",
    "note": "concat('prefilled row number ', id)",
    "active": "id % 2 = 0",
    "updated_at": f"id + {BASE_TS_NS // 1_000_000 - 10_000_000}L",
    "__deleted": "'false'",
    "__op": "'c'",
    "__table": f"'{UPSERT}'",
    "__source_ts_ns": f"{_OLD_TS_NS}L",
    "__db": f"'{DATABASE}'",
    "__ts_ms": f"{_OLD_TS_NS // 1_000_000}L",
}


def main(job_file: str) -> None:
    """Create and fill the tables of the job."""
    job = json.loads(Path(job_file).read_text())
    spark = open_session("benchmark prefill", Path(job["warehouse"]))
    columns = [f"CAST({EXPRESSIONS[name]} AS {sql_type(name)}) AS `{name}`" for name in ENVELOPE_COLUMNS]
    for table, properties in job["tables"].items():
        create_table(spark, table, True, properties)
        spark.range(0, job["rows"], 1, _FILES).selectExpr(*columns).writeTo(qualified(table)).append()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
