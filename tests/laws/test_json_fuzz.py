"""Spoilt JSON -> faults, or the very value that a strict parser reads; never a crash.

ICEBRIDGE_FUZZ_S (seconds) is how long the fuzzing goes on, with other examples each time; else it is one fixed round.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde.faults import Unfit
from serde.formats import make_deserializer
from serde.json.json_types import parse_schema_block
from serde.json.row_reader import parse_message, read_value, to_array
from tests.harness.rounds import draws
from tests.laws.test_serde_laws import batches

FUZZ_S = float(os.environ.get("ICEBRIDGE_FUZZ_S", "0"))
_SYNTAX = [*b'{}[]:,"\\ \n\tnulltrue0123456789eE+-.', 0, 0x1F, 0x80, 0xC3, 0xED, 0xFF]


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A schema block and payloads, some of them changed in one to three places."""
    schema, values = draw(batches())
    payloads = [json.dumps(value, separators=(",", ":")).encode() for value in values]
    return schema, [draw(_changed(payload)) if draw(st.booleans()) else payload for payload in payloads]


@st.composite
def _changed(draw: st.DrawFn, payload: bytes) -> bytes:
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(payload)))
        match draw(st.sampled_from(["put", "cut", "set", "twice"])):
            case "put":
                payload = payload[:at] + bytes([draw(st.sampled_from(_SYNTAX))]) + payload[at:]
            case "cut":
                payload = payload[:at] + payload[at + 1 :]
            case "set":
                payload = payload[:at] + bytes([draw(st.sampled_from(_SYNTAX))]) + payload[at + 1 :]
            case _:
                payload = payload[:at] + payload[: draw(st.integers(0, 8))] + payload[at:]
    return payload


def check(schema: bytes, payloads: list[bytes]) -> None:
    """Every message ends in one place; a row is what the row-by-row reader makes of the strictly parsed payload."""
    messages = [b'{"schema":' + schema + b',"payload":' + payload + b"}" for payload in payloads]
    outcome = make_deserializer("json-schema").decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER")
    rows: dict[int, Any] = {}
    for block in outcome.blocks:
        rows.update(zip(block.rows.tolist(), block.fields.to_pylist(), strict=True))
    places = [*rows, *outcome.tombstones.tolist(), *(fault.row for fault in outcome.faults)]
    assert sorted(places) == list(range(len(messages)))
    node = parse_schema_block(schema).node
    for row, value in rows.items():
        document = parse_message(messages[row])
        assert isinstance(document, dict)
        if document["schema"] == json.loads(schema):
            try:
                wire = to_array([read_value(node, document["payload"])], node.wire)
            except Unfit as unfit:
                raise AssertionError(f"accepted, but {unfit}: {messages[row]!r}") from unfit
            assert repr(wire.to_pylist()) == repr([value]) or _same_small(wire, value)


def _same_small(wire: pa.Array, value: Any) -> bool:
    """int8 and int16 are int32 columns: the values are equal all the same."""
    return bool(wire.to_pylist() == [value])


@given(spoilt())
@settings(max_examples=draws(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_spoilt_json_is_a_fault_or_what_it_says(case: tuple[bytes, list[bytes]]) -> None:
    """No message is accepted with a value that its bytes do not hold."""
    check(*case)


def places(messages: list[bytes], fmt: Any, stage: Any) -> dict[int, Any]:
    """The rows that messages became; each message is in exactly one place."""
    outcome = make_deserializer(fmt).decode(pa.array(messages, pa.binary()), stage)
    rows: dict[int, Any] = {}
    for block in outcome.blocks:
        rows.update(zip(block.rows.tolist(), block.fields.to_pylist(), strict=True))
    told = [*rows, *outcome.tombstones.tolist(), *(fault.row for fault in outcome.faults)]
    assert sorted(told) == list(range(len(messages)))
    return rows


def check_bare(payloads: list[bytes]) -> None:
    """Payloads without schema: what is accepted is one object of strict JSON, with no field that it does not have."""
    for fmt in ("json", "auto"):
        for row, value in places(payloads, fmt, "VALUE_CONVERTER").items():
            document = parse_message(payloads[row])
            assert isinstance(document, dict)
            assert {name for name, child in value.items() if child is not None} <= set(document)


_SINGLE = st.integers(-(2**70), 2**70) | st.text(max_size=8) | st.booleans() | st.floats(allow_nan=False, width=32)


@st.composite
def single_keys(draw: st.DrawFn) -> list[bytes]:
    """Keys that are one value, with and without schema, some of them spoilt."""
    kind = draw(st.sampled_from(["int64", "string", "boolean"]))
    front = b'{"schema":{"type":"%s","optional":false},"payload":' % kind.encode() if draw(st.booleans()) else b""
    keys = draw(st.lists(_SINGLE, min_size=1, max_size=8))
    whole = [front + json.dumps(key).encode() + (b"}" if front else b"") for key in keys]
    return [draw(_changed(key)) if draw(st.booleans()) else key for key in whole]


def check_keys(keys: list[bytes]) -> None:
    """A key that is one value is that value, and nothing that surrounds it becomes a field."""
    for row, value in places(keys, "auto", "KEY_CONVERTER").items():
        document = parse_message(keys[row])
        payload = document
        if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
            block = document["schema"]
            payload = (
                document["payload"] if block is None or (isinstance(block, dict) and "type" in block) else document
            )
        if isinstance(payload, dict):
            assert {name for name, child in value.items() if child is not None} <= set(payload)
        elif type(payload) is type(value["key"]):
            assert payload == value["key"]
        else:  # kinds that exclude each other meet in text, whole numbers and others in a double
            assert isinstance(value["key"], str | float)


@given(spoilt())
@settings(max_examples=draws(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_spoilt_payloads_without_schema(case: tuple[bytes, list[bytes]]) -> None:
    """Without a schema too, no message is accepted that is no JSON object."""
    check_bare(case[1])


@given(single_keys())
@settings(max_examples=draws(200), suppress_health_check=[HealthCheck.too_slow])
def test_spoilt_keys_of_one_value(keys: list[bytes]) -> None:
    """No key is accepted with a value that its bytes do not hold."""
    check_keys(keys)


@pytest.mark.timeout(FUZZ_S + 300)
def test_fuzzing() -> None:
    """The same once, or for as long as ICEBRIDGE_FUZZ_S says."""
    end = time.monotonic() + FUZZ_S

    @given(spoilt(), single_keys())
    @settings(max_examples=draws(50), database=None, derandomize=not FUZZ_S, suppress_health_check=list(HealthCheck))
    def once(case: tuple[bytes, list[bytes]], keys: list[bytes]) -> None:
        check(*case)
        check_bare(case[1])
        check_keys(keys)

    once()
    while time.monotonic() < end:
        once()
