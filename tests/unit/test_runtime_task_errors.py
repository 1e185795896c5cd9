"""Spark's report of a failed task -> the error of ours that was raised there."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException, PySparkRuntimeError

from connector.errors import FatalError, RetriableError
from connector.runtime.spark.task_errors import raise_task_errors

REPORT = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "connector/kafka/registry/confluent.py", line 1, in schema
{}
"""


@pytest.mark.parametrize("kind", [RetriableError, FatalError])
def test_ours_are_raised_again(kind: type[Exception]) -> None:
    """An error that a task raised on purpose keeps its class and text."""
    text = REPORT.format(f"connector.errors.{kind.__name__}: registry r: asking for schema id 7: ConnectError")
    with pytest.raises(kind) as caught, raise_task_errors():
        raise PySparkException(text)
    assert str(caught.value) == "registry r: asking for schema id 7: ConnectError"


def test_results_that_did_not_come() -> None:
    """A job whose results PySpark could not fetch is tried again: the machine was busy, nothing is wrong with it."""
    with pytest.raises(RetriableError, match="a job's results did not come from Spark's JVM: "), raise_task_errors():
        raise PySparkRuntimeError(errorClass="CANNOT_OPEN_SOCKET", messageParameters={"errors": "[reset by peer]"})


_LOST = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0: "
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat org.apache.spark.api.python",
    "[STAGE_MATERIALIZATION_MULTIPLE_FAILURES] Multiple failures (2) in stage materialization: \n"
    "  1. SparkException: EOFException occurred while reading the port number from connector.worker_daemon's stdout.\n",
    "org.apache.spark.SparkException: EOFException occurred while reading the port number from "
    "connector.worker_daemon's stdout and terminated with code: 137..\n",
    "java.lang.IllegalStateException: Python daemon failed to launch worker with code 11\n",
)


@pytest.mark.parametrize("report", _LOST)
def test_a_worker_that_is_lost_is_no_end(report: str) -> None:
    """A task whose Python worker was killed, or cannot be started now, is tried again; its error says what to do."""
    with pytest.raises(RetriableError, match=r"a Python worker .* \(out of memory, or killed\)"), raise_task_errors():
        raise PySparkException(report)


_LOST_EXECUTORS = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in "
    "stage 1.0 (TID 9) (h executor 4): ExecutorLostFailure (executor 4 exited caused by one of the running tasks) "
    "Reason: Container from a bad node: exit status 137\nDriver stacktrace:",
    "Job aborted due to stage failure: ShuffleMapStage 3 (collect at x.py:1) has failed the maximum allowable number "
    "of times: 4. Most recent failure reason:\norg.apache.spark.shuffle.MetadataFetchFailedException: Missing output",
)


@pytest.mark.parametrize("report", _LOST_EXECUTORS)
def test_executors_that_are_lost_are_no_end(report: str) -> None:
    """A job whose executors went away is tried again; its error says what to do should that come again."""
    with pytest.raises(RetriableError, match=r"executors .* were lost: .*spark\.executor\.memory"), raise_task_errors():
        raise PySparkException(report)


def test_workers_that_cannot_start_go_through() -> None:
    """Workers whose process ends at once by itself, as it lacks a module, are not waited for."""
    report = "EOFException occurred while reading the port number from x.daemon's stdout and terminated with code: 1."
    with pytest.raises(PySparkException), raise_task_errors():
        raise PySparkException(report)


def test_others_go_through() -> None:
    """Any other failure stays what it is."""
    with pytest.raises(PySparkException), raise_task_errors():
        raise PySparkException(REPORT.format("ValueError: connector.errors are not meant"))
