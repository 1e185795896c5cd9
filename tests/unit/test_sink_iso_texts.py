"""Dates and times that go to text columns -> ISO 8601 text, at any depth and whatever stands beside them."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from connector.sink.convert.decoder import decode
from tests.unit.json_messages import framed
from tests.unit.sink_plans import append, dead, plan, rows, run, upsert
from tests.unit.test_sink_documents import CREATE

MOMENT = 1_700_000_000_123_456
DATED, TEXT = {"_id": "a", "made": {"$date": 1_700_000_000_123}}, {"_id": "b", "made": "yesterday"}


@pytest.mark.parametrize(
    ("kind", "name", "sent", "text"),
    [
        ("int64", "MicroTimestamp", MOMENT, "2023-11-14T22:13:20.123456"),
        ("string", "ZonedTimestamp", "2023-11-14T22:13:20.123456Z", "2023-11-14T22:13:20.123456Z"),
        ("int32", "Date", 19_675, "2023-11-14"),
    ],
)
def test_moments_within_nested_columns(kind: str, name: str, sent: Any, text: str) -> None:
    """A table whose nested texts are older than the source's dates has them as its text columns do."""
    one = {"type": kind, "name": f"io.debezium.time.{name}"}
    fields = [
        {"type": "array", "items": one, "field": "a"},
        {"type": "struct", "fields": [{**one, "field": "x"}], "field": "s"},
        {**one, "field": "t"},
    ]
    columns = {"a": pa.list_(pa.string()), "s": pa.struct([("x", pa.string())]), "t": pa.string()}
    event = framed(fields, {"a": [sent], "s": {"x": sent}, "t": sent})
    assert rows(decode(run(event), plan(append(0, columns)))) == [{"a": [text], "s": {"x": text}, "t": text}]


@pytest.mark.parametrize("documents", [[DATED], [DATED, TEXT], [TEXT, DATED]])
def test_a_documents_date_is_one_text_whatever_stands_beside_it(documents: list[dict[str, Any]]) -> None:
    """A member that is a text column, as some documents have no date there, has the same text in every batch."""
    columns = dict.fromkeys(("_id", "made", "__deleted"), pa.string())
    events = [{**CREATE, "after": orjson.dumps(one).decode()} for one in documents]
    keys = [{"id": orjson.dumps(one["_id"]).decode()} for one in documents]
    outcome = decode(run(*events, keys=keys), plan(upsert(0, columns, ("_id",))))
    assert not dead(outcome)
    assert {row["_id"]: row["made"] for row in rows(outcome)}["a"] == "2023-11-14T22:13:20.123Z"
