"""Java's threads that call back -> connections and threads that end with them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from attrs import define, field
from pyspark.sql import SparkSession

from connector.iceberg.java import accept_callbacks, gateway_of, jvm
from connector.runtime.jvm.callback_connections import CallbackConnections
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark]


@define
class Task:
    """What Java's threads run."""

    java: Any
    runs: list[str] = field(factory=list)

    def run(self) -> None:
        """Call Java back, as callbacks of commits do."""
        self.runs.append(str(self.java.java.lang.Thread.currentThread().getName()))

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("java.lang.Runnable",)


def call_back(pool: Any, task: Task, times: int) -> None:
    """Have threads of a pool run the task."""
    for future in [pool.submit(task) for _ in range(times)]:
        future.get()


def test_connections_end_with_javas_threads(spark: SparkSession) -> None:
    """A sweep closes what rests, and our threads end with it; a thread of Java's that lives calls again."""
    java = jvm(spark)
    executors = java.java.util.concurrent.Executors
    task, connections = Task(java), CallbackConnections(gateway_of(spark))
    with accept_callbacks(spark):
        connections.sweep()
        before = threading.active_count()
        living = executors.newFixedThreadPool(1)
        call_back(living, task, 1)
        for _ in range(5):
            ended = executors.newFixedThreadPool(2)
            call_back(ended, task, 2)
            ended.shutdown()
        assert threading.active_count() > before + 5
        assert connections.sweep() >= 11
        wait_until(lambda: threading.active_count() <= before, 20)
        call_back(living, task, 1)
        assert connections.sweep() == 1
        living.shutdown()
    assert len(task.runs) == 12
