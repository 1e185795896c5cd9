"""Jobs of maintenance and of batches at once -> batches do not wait for all tasks of maintenance."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.runtime.spark.job_pools import MAINTENANCE, enter_pool
from tests.harness.waiting import wait_until

pytestmark = pytest.mark.spark


def test_a_batch_goes_before_the_tasks_of_maintenance(spark: SparkSession, tmp_path: Path) -> None:
    """A job that comes while another one with many tasks works gets the next core that is free."""
    begun, go = tmp_path / "begun", tmp_path / "go"

    def start(name: str, tasks: int, pool: str | None) -> threading.Thread:
        def task(_: int) -> None:
            with begun.open("a") as lines:
                lines.write(f"{name}\n")
            while not go.exists():
                time.sleep(0.01)
            time.sleep(0.05)

        def work() -> None:
            if pool is not None:
                enter_pool(spark, pool)
            spark.sparkContext.parallelize(range(tasks), tasks).foreach(task)

        job = threading.Thread(target=work)
        job.start()
        return job

    jobs = [start("maintenance", 16, MAINTENANCE)]
    wait_until(lambda: begun.exists() and len(begun.read_text().split()) == 2, 60)  # no core is free
    jobs.append(start("batch", 2, None))
    wait_until(lambda: len(spark.sparkContext.statusTracker().getActiveStageIds()) == 2, 60)
    time.sleep(0.2)  # the scheduler hears of a stage a moment after it is listed
    go.touch()
    for job in jobs:
        job.join()
    names = begun.read_text().split()
    assert (names.count("batch"), len(names)) == (2, 18)
    assert "batch" not in names[6:], names
