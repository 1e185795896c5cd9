"""Calls to brokers, catalogs and stores -> the same calls, tried again with back-off while they may still succeed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import stamina
import structlog
from stamina.instrumentation import set_on_retry_hooks

from connector.errors import RetriableError, TimeOver
from connector.runtime.stop_signals import is_overdue
from connector.settings import ErrorSettings

T = TypeVar("T")

_FIRST_WAIT_S, _JITTER_S, _LOOK_S = 0.2, 1.0, 0.2
_MAX_DOUBLINGS = 16
"""No wait is greater; after hours of failures the doubled one would be no number any more."""

# Each retry is logged here, with its reason; stamina would log it once more.
set_on_retry_hooks(())


def call_with_retries(call: Callable[[], T], settings: ErrorSettings) -> T:
    """Call until it succeeds or `errors.retry.timeout` has passed since it first failed, with growing waits and jitter.

    Counted from there, so that a long job whose commit is refused is tried again too. Once a run was asked to stop
    little time is left, however long that is.

    Raises:
        TimeOver: the last one's words, when the time is over; a call around this one does not begin again.
        RetriableError: with a time of none, the first one. Other errors leave at once.
    """
    try:
        return call()
    except TimeOver:
        raise
    except RetriableError as error:
        if not settings.retry_timeout_ms:
            raise
        if is_overdue():
            raise TimeOver(str(error)) from error.__cause__
        first_reason = str(error)
        structlog.get_logger().warning("will try again", attempt=1, reason=first_reason)
    _pause(_FIRST_WAIT_S)
    try:
        return _call_again(call, settings, first_reason)
    except TimeOver:
        raise
    except RetriableError as error:
        raise TimeOver(str(error)) from error.__cause__


def _call_again(call: Callable[[], T], settings: ErrorSettings, last_reason: str) -> T:
    endless = settings.retry_timeout_ms < 0
    for attempt in stamina.retry_context(
        on=_is_retriable,
        attempts=None,
        timeout=None if endless else settings.retry_timeout_ms / 1000,
        wait_initial=0,
        wait_max=0,
        wait_jitter=0,
    ):
        with attempt:
            if attempt.num > 1:
                # Not by stamina, which would not notice a stop meanwhile.
                _pause(_choose_wait_s(attempt.num - 2, settings.retry_delay_max_ms / 1000))
            try:
                return call()
            except RetriableError as error:
                # The same once more is no news.
                if _is_retriable(error) and str(error) != last_reason:
                    last_reason = str(error)
                    structlog.get_logger().warning("will try again", attempt=attempt.num + 1, reason=last_reason)
                raise
    raise AssertionError("unreachable")


def _choose_wait_s(failures: int, longest_s: float) -> float:
    jitter_s = random.uniform(0, _JITTER_S)  # noqa: S311 - no secret
    return min(double_wait_s(_FIRST_WAIT_S, failures, longest_s) + jitter_s, longest_s)


def _pause(seconds: float) -> None:
    """Wait, as long as it is of any use: once a run was asked to stop little time is left."""
    while seconds > 0 and not is_overdue():
        time.sleep(min(seconds, _LOOK_S))
        seconds -= _LOOK_S


def double_wait_s(first_s: float, failures: int, longest_s: float) -> float:
    """Return how long to wait after so many failures in a row: doubled with each, up to the longest (pure)."""
    return min(first_s * 2 ** min(failures, _MAX_DOUBLINGS), longest_s)


def _is_retriable(error: Exception) -> bool:
    return isinstance(error, RetriableError) and not isinstance(error, TimeOver) and not is_overdue()
