"""An error inside a session -> what a person is told: whether its JVM is gone."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from connector.errors import FatalError
from connector.runtime.spark import session
from connector.runtime.spark.session import open_session

SETTINGS: Any = SimpleNamespace()
UNANSWERED = "An error occurred while calling o448.awaitTermination"


class Starting:
    """A session whose JVM is another program."""

    def __init__(self, program: str, *words: str) -> None:
        self.process = subprocess.Popen((program, *words))

    def finish(self) -> Any:
        gateway = SimpleNamespace(proc=self.process)
        return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway), stop=lambda: None)

    def __enter__(self) -> Starting:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_a_call_without_an_answer_tells_that_the_jvm_has_ended() -> None:
    """Py4J does not say so of a call that was under way: the process does."""
    starting: Any = Starting("/bin/true")
    with pytest.raises(FatalError, match="Spark's JVM ended by itself"), open_session(SETTINGS, starting):
        raise Py4JError(UNANSWERED)


def test_an_error_of_a_jvm_that_lives_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told that the JVM ended where it runs."""
    monkeypatch.setattr(session, "_ENDING_S", 0.05)
    starting: Any = Starting("/bin/sleep", "600")
    try:
        with pytest.raises(Py4JError, match="awaitTermination"), open_session(SETTINGS, starting):
            raise Py4JError(UNANSWERED)
    finally:
        starting.process.kill()
        starting.process.wait(60)
