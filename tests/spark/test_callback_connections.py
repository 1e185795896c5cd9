"""Java's threads that call back -> connections and threads that end with them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from attrs import define, field
from pyspark.sql import SparkSession

from connector.iceberg.java import accept_callbacks, gateway_of, iterate, jvm
from connector.runtime.jvm.callback_connections import CallbackConnections
from tests.harness.waiting import wait_until

pytestmark = [pytest.mark.spark]


@define
class Task:
    """What Java's threads run."""

    java: Any
    connections: CallbackConnections
    runs: list[str] = field(factory=list)

    def run(self) -> None:
        """Call Java back, as callbacks of commits do."""
        self.connections.note_caller()
        self.runs.append(str(self.java.java.lang.Thread.currentThread().getName()))

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("java.lang.Runnable",)


def call_back(pool: Any, task: Task, times: int) -> None:
    """Have threads of a pool run the task."""
    for future in [pool.submit(task) for _ in range(times)]:
        future.get()


def sweep_until(connections: CallbackConnections, count: int) -> None:
    """Sweep until so many have gone: a thread may live a moment longer than its pool."""
    gone = list[int]()

    def is_done() -> bool:
        gone.append(connections.sweep())
        return sum(gone) == count

    wait_until(is_done, 20)


def test_connections_end_with_javas_threads(spark: SparkSession) -> None:
    """A sweep closes those of ended threads, and ours end with them; a thread of Java's that lives keeps its own."""
    executors = jvm(spark).java.util.concurrent.Executors
    connections = CallbackConnections(gateway_of(spark))
    task = Task(jvm(spark), connections)
    with accept_callbacks(spark):
        before = threading.active_count()
        living = executors.newFixedThreadPool(1)
        call_back(living, task, 1)
        for _ in range(5):
            ended = executors.newFixedThreadPool(2)
            call_back(ended, task, 2)
            ended.shutdown()
            assert ended.awaitTermination(20, jvm(spark).java.util.concurrent.TimeUnit.SECONDS)
        assert threading.active_count() >= before + 11
        sweep_until(connections, 10)
        wait_until(lambda: threading.active_count() <= before + 1, 20)
        call_back(living, task, 1)
        assert connections.sweep() == 0
        living.shutdown()
        assert living.awaitTermination(20, jvm(spark).java.util.concurrent.TimeUnit.SECONDS)
        sweep_until(connections, 1)
        wait_until(lambda: threading.active_count() <= before, 20)
    assert len(task.runs) == 12


def test_a_sweep_within_a_callback_leaves_the_caller_its_connection(spark: SparkSession) -> None:
    """Threads of Java's that are in the midst of a call, and called back from within it, go on."""
    connections = CallbackConnections(gateway_of(spark))

    @define
    class Sweeper(Task):
        def run(self) -> None:
            self.connections.note_caller()
            inner = Task(self.java, self.connections)
            self.java.java.util.concurrent.Executors.callable(inner).call()
            self.runs.append(str(self.connections.sweep()))
            self.runs.append(str(self.java.java.lang.Thread.currentThread().isAlive()))

    task = Sweeper(jvm(spark), connections)
    with accept_callbacks(spark):
        living = jvm(spark).java.util.concurrent.Executors.newFixedThreadPool(1)
        call_back(living, task, 2)
        living.shutdown()
    assert task.runs == ["0", "True"] * 2


def test_a_thread_that_is_called_back_within_its_own_call_takes_its_connection_along(spark: SparkSession) -> None:
    """Its connection and Java's thread at the other end are gone with it: maintenance begins a thread each time."""
    connections = CallbackConnections(gateway_of(spark))
    task = Task(jvm(spark), connections)

    def maintain() -> None:
        with accept_callbacks(spark):
            task.java.java.util.concurrent.Executors.callable(task).call()

    def count_in_java() -> int:
        names = [str(one.getName()) for one in iterate(jvm(spark).java.lang.Thread.getAllStackTraces().keySet())]
        return len([name for name in names if name in task.runs])

    for _ in range(3):
        thread = threading.Thread(target=maintain)
        thread.start()
        thread.join()
    assert len(set(task.runs)) == 3
    wait_until(lambda: count_in_java() == 0, 20)
