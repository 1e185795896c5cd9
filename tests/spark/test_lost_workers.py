"""A Python worker that is killed, or the process that they are forked from -> an error that says to try again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connector.errors import RetriableError
from connector.runtime.spark.task_errors import raise_task_errors

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("whole", [False, True], ids=["worker", "daemon"])
def test_a_killed_worker_is_tried_again(spark: SparkSession, whole: bool) -> None:
    """A job whose worker gets SIGKILL, or all workers with the daemon, may be done again, and then succeeds."""

    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if whole:
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    with pytest.raises(RetriableError, match="a Python worker ended"), raise_task_errors():
        spark.range(3).mapInArrow(die, "id long").collect()
    assert spark.range(3).mapInArrow(lambda batches: batches, "id long").count() == 3
