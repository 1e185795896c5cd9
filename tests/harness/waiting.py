"""Something that comes later, in another thread or process -> the moment when it is there, or TimeoutError."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(
    condition: Callable[[], bool], timeout_s: float, otherwise: str = "nothing came", *, step_s: float = 0.05
) -> None:
    """Return when the condition holds. TimeoutError with `otherwise` when it does not in time."""
    limit = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"{otherwise} within {timeout_s:.0f} s")
        time.sleep(step_s)


def call_until_answered(
    call: Callable[[], T], errors: tuple[type[Exception], ...], timeout_s: float, *, step_s: float
) -> T:
    """Return what a call gives once it raises none of these errors; the last of them when time is over."""
    limit = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except errors:
            if time.monotonic() > limit:
                raise
            time.sleep(step_s)
