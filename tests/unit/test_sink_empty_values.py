"""Empty lists and objects in JSON without schema -> no column, until a value says of what type it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.local_sink import LocalSink, local_sink

SOURCE = {"connector": "postgresql", "name": "s", "db": "d", "table": "t", "ts_ms": 1, "lsn": 5}


def _send(sink: LocalSink, number: int, value: Any, *, flat: bool) -> int:
    row = {"id": number, "a": value}
    event = row if flat else {"before": None, "after": row, "source": SOURCE, "op": "c", "ts_ms": 2}
    return sink.process((("t", 0), json.dumps({"id": number}).encode(), json.dumps(event).encode())).dead_letters


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("empty", [[], {}, [{}], [[]], {"k": []}, [None]], ids=json.dumps)
def test_an_empty_value_decides_no_type(empty: Any, flat: bool, tmp_path: Path) -> None:
    """Also where such a column of other messages had values before, in other tables of the same process."""
    for value in ([1], ["a"], [[1.5]], {"k": ["b"]}, [{"k": 1}], "text"):
        sink = local_sink(tmp_path, ["topics=t", "debezium.sink.iceberg.upsert-keep-deletes=false"])
        assert _send(sink, 1, empty, flat=flat) == 0
        assert _send(sink, 2, value, flat=flat) == 0
        assert [row.get("a") for row in sink.rows("t")] == [None, value]
