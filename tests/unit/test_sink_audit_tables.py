"""Rows with columns that are called as the parts of an envelope -> rows: tables of audits and logs have such names."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from serde.connect.connect_schema import is_envelope_node
from serde.json.json_types import parse_schema_block
from tests.unit import sink_plans
from tests.unit.json_messages import framed

TEXTS = ("op", "source", "before", "after", "extra")
TYPES = {"id": pa.int64(), **dict.fromkeys(TEXTS, pa.string())}
ROWS = [{"id": number, **{name: f"{name} {number}" for name in TEXTS}} for number in range(30)]
FIELDS: list[dict[str, Any]] = [
    {"type": "int64", "optional": False, "field": "id"},
    *({"type": "string", "optional": True, "field": name} for name in TEXTS),
]


def _framed(row: dict[str, Any]) -> bytes:
    return framed(FIELDS, row, "s.public.audits.Value")


@pytest.mark.parametrize("written", [dict, _framed], ids=["bare", "schema"])
def test_a_flattened_row_keeps_all_its_columns(written: Any) -> None:
    """Nothing but a source with members makes an envelope, so no column is left out and none has to be a struct."""
    run = sink_plans.run(*map(written, ROWS))
    (need,) = decode(run, sink_plans.plan(events=EventSettings("auto", "auto", (), "__"))).needs
    assert set(need.row.names) == set(TYPES)
    outcome = decode(run, sink_plans.plan(sink_plans.append(0, TYPES)))
    assert sink_plans.dead(outcome) == {} and not outcome.needs
    assert sink_plans.rows(outcome) == ROWS


@pytest.mark.parametrize("written", [dict, _framed], ids=["bare", "schema"])
def test_an_envelope_of_such_rows_is_one(written: Any) -> None:
    """The images have the columns, and what stands around them is the connector's."""
    source = {"connector": "postgresql", "name": "s", "ts_ms": 1}
    payloads = [{"op": "c", "source": source, "before": None, "after": row} for row in ROWS]
    if written is _framed:
        image = {"type": "struct", "optional": True, "fields": FIELDS}
        told = [{"type": "string", "field": "connector"}, {"type": "string", "field": "name"}]
        fields: list[Any] = [{**image, "field": "before"}, {**image, "field": "after"}]
        fields += [{"type": "struct", "fields": told, "field": "source"}, {"type": "string", "field": "op"}]
        run = sink_plans.run(*(framed(fields, payload, "s.Envelope") for payload in payloads))
        assert is_envelope_node(parse_schema_block(json.dumps({"type": "struct", "fields": fields}).encode()).node)
    else:
        run = sink_plans.run(*payloads)
    outcome = decode(run, sink_plans.plan(sink_plans.append(0, {**TYPES, "__deleted": pa.string()})))
    assert sink_plans.dead(outcome) == {} and not outcome.needs
    assert [{name: row[name] for name in TYPES} for row in sink_plans.rows(outcome)] == ROWS


def test_variants_of_such_rows_are_encoded() -> None:
    """A nested value of a row is a variant's text, whatever its column is called."""
    table = sink_plans.append(0, {**TYPES, "after": pa.struct([("q", pa.int64())])})
    rows = [{**row, "after": {"q": row["id"]}} for row in ROWS]
    outcome = decode(sink_plans.run(*rows), sink_plans.plan(table, variants=True))
    assert sink_plans.dead(outcome) == {} and sink_plans.rows(outcome) == rows
