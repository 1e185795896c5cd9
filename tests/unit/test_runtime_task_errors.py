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


def test_others_go_through() -> None:
    """Any other failure stays what it is."""
    with pytest.raises(PySparkException), raise_task_errors():
        raise PySparkException(REPORT.format("ValueError: connector.errors are not meant"))
