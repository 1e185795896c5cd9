"""tables -> verdicts: compare each final table with its reference, in a process of its own and not timed.

Run as `python -m benchmarks.check JOB.json` with warehouse, result and pairs of tables and reference (Parquet). Spark's
Iceberg reader applies all delete files. A table is right when its count, the sum and the exclusive or of its row
hashes, and the sum of the hashes of each column equal the reference's. A pair with `where` has the rows that meet this
condition in its reference, and with `rows` says how many the table has, `among` those that meet another one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from benchmarks.session import open_session, qualified

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def main(job_file: str) -> None:
    """Check all pairs of the job and write {case: fault or null} to its result file."""
    job = json.loads(Path(job_file).read_text())
    spark = open_session("benchmark check", Path(job["warehouse"]))
    faults = {pair["name"]: fault_of(spark, pair) for pair in job["pairs"]}
    Path(job["result"]).write_text(json.dumps(faults))
    spark.stop()


def fault_of(spark: SparkSession, pair: dict[str, Any]) -> str | None:
    """What is wrong with a case's tables; None when nothing is."""
    reference = spark.read.parquet(pair["reference"])
    try:
        table = all_rows(spark, pair["tables"])
        among = table.where(pair.get("among", "true"))
        if (rows := pair.get("rows")) is not None and (found_rows := among.count()) != rows:
            return f"{found_rows} rows for {rows}"
        table = table.where(pair.get("where", "true"))
        missing = [name for name in reference.columns if name not in table.columns]
        if missing:
            return f"columns missing: {', '.join(missing)}"
        expected, actual = sums_of(reference, reference.schema), sums_of(table, reference.schema)
    except PySparkException as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    wrong = [name for name, value in expected.items() if actual[name] != value]
    if not wrong:
        return None
    return f"{actual['count']} rows for {expected['count']}; differs in {', '.join(wrong)}"


def all_rows(spark: SparkSession, tables: Sequence[str]) -> DataFrame:
    """The rows of all tables. Of several, each row says which one it is in, whatever its event said."""
    if len(tables) == 1:
        return spark.table(qualified(tables[0]))
    frames = (spark.table(qualified(name)).withColumn("__table", lit(name.rpartition(".")[2])) for name in tables)
    return reduce(DataFrame.unionByName, frames)


def sums_of(rows: DataFrame, schema: StructType) -> dict[str, Any]:
    """Count and hash sums of `rows`, its columns cast to the types of `schema`."""
    typed = rows.selectExpr(*(f"CAST(`{field.name}` AS {field.dataType.simpleString()})" for field in schema))
    every = ", ".join(f"`{name}`" for name in typed.columns)
    columns = [f"sum(CAST(xxhash64(`{name}`) AS DECIMAL(38, 0))) AS `{name}`" for name in typed.columns]
    sums = typed.selectExpr(
        "count(*) AS count",
        f"sum(CAST(xxhash64({every}) AS DECIMAL(38, 0))) AS whole_rows",
        f"bit_xor(xxhash64({every})) AS whole_rows_xor",
        *columns,
    )
    first = sums.first()
    return first.asDict() if first else {}


if __name__ == "__main__":
    main(sys.argv[1])
