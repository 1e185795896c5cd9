"""Rows whose columns are all null, in envelopes without schema -> rows, whatever else is in their batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.local_sink import LocalSink, local_sink

HARD = "debezium.sink.iceberg.upsert-keep-deletes=false"
SOURCE = {"connector": "postgresql", "name": "s", "db": "d", "table": "t", "ts_ms": 1, "ts_ns": 1_000_001, "lsn": 5}


def _bytes(document: Any) -> bytes | None:
    return None if document is None else json.dumps(document, separators=(",", ":")).encode()


def _event(key: Any, after: Any, op: str = "c", before: Any = None) -> tuple[bytes | None, bytes | None]:
    return _bytes(key), _bytes({"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 2})


def _send(sink: LocalSink, *events: tuple[bytes | None, bytes | None]) -> int:
    return sink.process(*((("t", 0), *event) for event in events)).dead_letters


NULLS = {"a": None, "b": None}


@pytest.mark.parametrize("extra", ["debezium.sink.iceberg.upsert=false", HARD])
@pytest.mark.parametrize("known", [False, True])
def test_a_row_of_nulls_is_a_row_alone_in_its_batch(extra: str, known: bool, tmp_path: Path) -> None:
    """It is no envelope without image, and it has what add.fields gives every row, in a table that is there too."""
    sink = local_sink(tmp_path, ["topics=t", extra])
    if known:
        _send(sink, _event(None, {"a": 1, "b": {"c": 2}}))
    assert _send(sink, _event(None, NULLS)) == 0
    assert _send(sink, _event(None, NULLS, "u", NULLS), _event(None, NULLS)) == 0
    found = sink.rows("t")[known:]
    assert [(row.get("a"), row.get("b")) for row in found] == [(None, None)] * 3
    told = [(row["__deleted"], row["__op"], row["__source_ts_ns"]) for row in found]
    assert told == [("false", op, 1_000_001) for op in "cuc"]


def test_a_key_with_a_row_of_nulls_has_a_row(tmp_path: Path) -> None:
    """Where the value leaves the key out, the key alone tells rows apart; deletes of such rows find them."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    assert _send(sink, *(_event({"id": key}, NULLS) for key in (1, 2))) == 0
    assert _send(sink, _event({"id": 1}, None, "d", NULLS)) == 0
    assert [row["id"] for row in sink.rows("t")] == [2]


def test_an_image_that_is_null_is_none(tmp_path: Path) -> None:
    """An insert whose `after` is null, beside rows of nulls, is a dead letter still."""
    sink = local_sink(tmp_path, ["topics=t", HARD])
    assert _send(sink, _event(None, NULLS), _event(None, None), _event(None, {"a": 1})) == 1
    assert [row.get("a") for row in sink.rows("t")] == [None, 1]


@pytest.mark.parametrize("framed", [False, True], ids=["bare", "with schemas off"])
def test_a_cloud_event_with_a_row_of_nulls_is_a_row_and_one_without_images_none(framed: bool, tmp_path: Path) -> None:
    """Each is alone in its batch; both images of a truncate are null, which is no row of nulls."""
    sink = local_sink(tmp_path, ["topics=t", HARD, "truncate.enabled=true"])
    for events in ([("c", NULLS)], [("t", None)], [("c", NULLS), ("c", NULLS)]):
        assert _send(sink, *((None, _bytes(_cloud_event(op, after, framed=framed))) for op, after in events)) == 0
    found = sink.rows("t")
    assert [(row.get("a"), row["__op"]) for row in found[-2:]] == [(None, "c")] * 2


def _cloud_event(op: str, after: Any, *, framed: bool) -> dict[str, Any]:
    data = {"before": None, "after": after}
    around = {"id": "1", "source": "/debezium/postgresql/s", "specversion": "1.0", "type": "DataChangeEvent"}
    own = {"iodebeziumop": op, "iodebeziumname": "s", "iodebeziumtsms": "1", "iodebeziumlsn": "5"}
    return {**around, **own, "data": {"schema": None, "payload": data} if framed else data}
