"""A call that fails -> how long it is tried again, and what the log says of it."""

from __future__ import annotations

import attrs
import pytest
import structlog

from connector.errors import RetriableError, TimeOver
from connector.runtime.retry import call_with_retries
from connector.settings import ErrorSettings


def test_a_long_call_is_tried_again() -> None:
    """The time to try again begins with the first failure; none is left with a timeout of 0."""
    calls = list[int]()

    def fails() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise RetriableError("away")
        return len(calls)

    settings = ErrorSettings("all", "t", -1, 0.1, 1, 5_000, 10)
    assert call_with_retries(fails, settings) == 3
    calls.clear()
    with pytest.raises(RetriableError):
        call_with_retries(fails, attrs.evolve(settings, retry_timeout_ms=0))
    assert len(calls) == 1


def test_a_retry_is_logged_once_and_not_begun_anew() -> None:
    """One line per reason; what was tried for as long as one may is not tried again by whoever asked for it."""
    calls = list[int]()

    def fails() -> None:
        calls.append(1)
        raise RetriableError(f"away {len(calls)}")

    settings = ErrorSettings("all", "t", -1, 0.1, 1, 1, 10)
    with structlog.testing.capture_logs() as lines, pytest.raises(TimeOver):
        call_with_retries(lambda: call_with_retries(fails, settings), attrs.evolve(settings, retry_timeout_ms=60_000))
    assert [line["attempt"] for line in lines] == list(range(1, len(calls) + 1))
