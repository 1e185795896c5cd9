"""A thread of the driver -> the pool of Spark's scheduler that its jobs are in: tasks of batches go before others.

By Spark's default a job that began earlier has all the cores that it wants: a batch would wait for every task of a
rewrite. Tasks that run are not stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from connector.runtime.spark.local_paths import name_locally

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAINTENANCE = "maintenance"
"""The pool of what may wait."""
POOLS = {
    "spark.scheduler.mode": "FAIR",
    "spark.scheduler.allocation.file": name_locally(Path(__file__).with_name("job-pools.xml")),
}
"""Settings of a session that has these pools."""


def enter_pool(spark: SparkSession, pool: str) -> None:
    """Have the jobs that this thread starts, and those of threads that Java starts for it, be in a pool."""
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
