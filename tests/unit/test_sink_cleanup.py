"""Cleanup beside the batches: who waits for it, and what becomes of its errors."""

from __future__ import annotations

import threading

import pytest
from structlog.testing import capture_logs

from connector.errors import RetriableError
from connector.sink.microbatch.background_cleanup import BackgroundCleanup
from tests.harness.waiting import wait_until


def test_nobody_waits_for_a_cleanup_that_goes_on() -> None:
    """Who begins it goes on at once; no second one begins meanwhile, and the end of the run waits for it."""
    begun, may_end, calls = threading.Event(), threading.Event(), []

    def clean_up() -> None:
        calls.append("begun")
        begun.set()
        assert may_end.wait(30)
        calls.append("ended")

    cleanup = BackgroundCleanup(clean_up)
    for _ in range(3):
        cleanup.begin()
        assert begun.wait(30)
    assert calls == ["begun"]
    may_end.set()
    cleanup.close()
    assert calls == ["begun", "ended"]


def test_a_cleanup_begins_again_once_the_last_one_has_ended() -> None:
    """Each look after its end begins another one."""
    calls: list[int] = []
    cleanup = BackgroundCleanup(lambda: calls.append(len(calls)))
    for count in (1, 2):
        cleanup.begin()
        wait_until(lambda count=count: len(calls) == count and cleanup.is_idle, 30, "no cleanup")  # type: ignore[misc]
    cleanup.close()
    assert calls == [0, 1]


def test_a_cleanup_that_fails_is_postponed_with_its_reason() -> None:
    """Another writer was faster, or the catalog is away: a warning, and the next one begins."""

    def refuse() -> None:
        raise RetriableError("another writer was faster")

    with capture_logs() as logs:
        cleanup = BackgroundCleanup(refuse)
        cleanup.begin()
        cleanup.close()
    assert [(entry["event"], entry["reason"]) for entry in logs] == [
        ("cleanup is postponed", "another writer was faster")
    ]


def test_what_nobody_foresaw_of_a_cleanup_is_not_lost() -> None:
    """It is raised when the next one would begin, and at the end."""

    def break_down() -> None:
        raise KeyError("a fault of ours")

    cleanup = BackgroundCleanup(break_down)
    cleanup.begin()
    wait_until(lambda: cleanup.is_idle, 30, "no end")
    with pytest.raises(KeyError, match="a fault of ours"):
        cleanup.begin()
    with pytest.raises(KeyError, match="a fault of ours"):
        cleanup.close()
