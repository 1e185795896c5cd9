"""A person who looks at a connector -> the answer, or why there is none, as soon as they have waited long enough."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from connector.cli.status import answers, sink, sink_state
from connector.cli.status.end_offsets import EndsView
from connector.cli.status.sink_state import SinkState, SinkTable
from connector.errors import RetriableError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets


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


@pytest.mark.parametrize(("ids", "lag"), [({"t": "second"}, None), ({"t": "first"}, 0), ({}, 0)])
def test_the_lag_of_a_topic_that_was_made_again_is_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ids: dict[str, str], lag: int | None
) -> None:
    """Its end is below the offset that was stored of the former one: that is no lag of 0, and a line says why."""
    position = KafkaOffsets("c", {"t": "first"}, {("t", 0): 90})
    state = SinkState(position, (SinkTable("db.t", None, {("t", 0): 90}),))
    monkeypatch.setattr(sink, "open_gateway", lambda _: nullcontext())
    monkeypatch.setattr(sink, "read_state", lambda *_, **__: state)
    asked: Future[EndsView] = Future()
    asked.set_result(EndsView({("t", 0): 4}, ids=ids))
    settings, starting = cast("Any", SimpleNamespace(name="s")), cast("Any", None)
    sink.show(settings, starting, asked, output="json")
    told = json.loads(capsys.readouterr().out)
    assert told["tables"]["db.t"]["lag"] == lag
    assert told.get("topics_made_again", []) == ([] if lag == 0 else ["t"])
    sink.show(settings, starting, asked, output="text")
    assert ("topic t was deleted and made again" in capsys.readouterr().out) == (lag is None)
