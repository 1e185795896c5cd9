"""Jobs of maintenance and of batches at once -> batches do not wait for all tasks of maintenance."""

from __future__ import annotations

import threading
import time

import pytest
from pyspark.sql import SparkSession

from connector.runtime.spark.job_pools import MAINTENANCE, enter_pool

pytestmark = pytest.mark.spark


def test_a_batch_goes_before_the_tasks_of_maintenance(spark: SparkSession) -> None:
    """A job that comes while another one with many tasks works gets the next core that is free."""
    ended: dict[str, float] = {}

    def work(name: str, tasks: int, pool: str | None) -> None:
        if pool is not None:
            enter_pool(spark, pool)
        spark.sparkContext.parallelize(range(tasks), tasks).foreach(lambda _: time.sleep(0.3))
        ended[name] = time.monotonic()

    work("warm", 2, None)
    slow = threading.Thread(target=work, args=("maintenance", 16, MAINTENANCE))
    slow.start()
    time.sleep(0.5)
    began = time.monotonic()
    work("batch", 2, None)
    slow.join()
    assert ended["batch"] < ended["maintenance"]
    assert ended["batch"] - began < (ended["maintenance"] - began) / 2
