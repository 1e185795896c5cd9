"""A JVM that keeps its signals to itself (-Xrs) -> the sink starts all the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import IllegalArgumentException

from connector.runtime.spark.jvm_signals import ignore_sigterm


class _OfSession(IllegalArgumentException):
    """What PySpark raises beside a session, made without its JVM."""

    def __init__(self) -> None:
        Exception.__init__(self, "Signal already used by VM or OS: SIGTERM")


class _OfGateway(Py4JJavaError):
    """What Py4J raises of a JVM without Spark."""

    def __init__(self) -> None:
        Exception.__init__(self, "Signal already used by VM or OS: SIGTERM")


@pytest.mark.parametrize("error", [_OfSession, _OfGateway])
def test_signals_that_the_jvm_has_given_up_are_left_alone(error: type[Exception]) -> None:
    """Java refuses the handler: SIGTERM then reaches this process only."""
    asked = []

    def handle(*told: Any) -> None:
        asked.append(told)
        raise error

    signal = type("Signal", (), {"handle": staticmethod(handle), "__init__": lambda *_: None})
    misc = SimpleNamespace(Signal=signal, SignalHandler=SimpleNamespace(SIG_IGN="ignore"))
    ignore_sigterm(SimpleNamespace(sun=SimpleNamespace(misc=misc)))
    assert [told[1] for told in asked] == ["ignore"]
