"""Types of one topic's messages without schema -> nothing for the table of another topic in the same process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.local_sink import LocalSink, local_sink


def _send(sink: LocalSink, topic: str, field: str, values: Sequence[Any]) -> None:
    events = [{"row": number, field: value} for number, value in enumerate(values)]
    records = [((topic, 0), json.dumps({"row": e["row"]}).encode(), json.dumps(e).encode()) for e in events]
    assert sink.process(*records).dead_letters == 0


@pytest.mark.parametrize(
    "whole", [[2], [None] * 200 + [2], [{"k": 2}], [[2]], [[None]] * 200 + [[2]]], ids=lambda one: json.dumps(one[-1])
)
def test_whole_numbers_stay_whole_whatever_another_topic_had(whole: Sequence[Any], tmp_path: Path) -> None:
    """Numbers with a fraction in a field of that name make no double of it, and no key column unfit."""
    sink = local_sink(tmp_path, ["topics=a,b", "debezium.sink.iceberg.upsert-keep-deletes=false"])
    fractions = {dict: {"k": 1.5}, list: [1.5]}.get(type(whole[-1]), 1.5)
    _send(sink, "a", "n", [fractions])
    _send(sink, "b", "n", whole)
    found = [row["n"] for row in sink.rows("b")]
    assert repr(found) == repr(list(whole))
