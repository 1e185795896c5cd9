"""A person who looks at a connector -> the answer, or why there is none, as soon as they have waited long enough."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any, cast

import pytest

from connector.cli.status import answers, sink_state
from connector.errors import RetriableError


def test_a_catalog_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked is told after the time for an answer, though the call itself hangs until the JVM ends."""
    released = threading.Event()
    monkeypatch.setattr(sink_state, "wait_for", partial(answers.wait_for, limit_s=0.1))
    monkeypatch.setattr(sink_state, "_open_offsets", lambda *_: released.wait(5))
    began, none = time.monotonic(), cast("Any", None)
    with pytest.raises(RetriableError, match=r"did not answer within 0\.1 s"):
        sink_state.read_state(none, none)
    took_s = time.monotonic() - began
    released.set()
    assert took_s < 3
