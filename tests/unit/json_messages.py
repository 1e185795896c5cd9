"""JSON messages for tests -> what a fresh converter makes of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from serde.formats import make_deserializer
from serde.messages import DecodedMessages

VALUE = "VALUE_CONVERTER"


def dump(document: Any) -> bytes:
    """Compact JSON as Java writes it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def decode(*messages: bytes | None, fmt: Any = "auto", expected: pa.StructType | None = None) -> DecodedMessages:
    """Decodes values of a fresh converter."""
    return make_deserializer(fmt).decode(pa.array(messages, pa.binary()), "VALUE_CONVERTER", expected)


def rows(decoded: DecodedMessages) -> dict[int, dict[str, Any]]:
    """Row index -> decoded message."""
    return {
        int(row): value
        for block in decoded.blocks
        for row, value in zip(block.rows, block.fields.to_pylist(), strict=True)
    }


def framed(fields: list[Any], payload: Any, name: str = "t.Value") -> bytes:
    """A message with a schema block."""
    return dump({"schema": {"type": "struct", "fields": fields, "optional": False, "name": name}, "payload": payload})


def keys(*messages: bytes | None, fmt: Any = "auto", expected: pa.StructType | None = None) -> DecodedMessages:
    """Decodes keys of a fresh converter."""
    return make_deserializer(fmt).decode(pa.array(messages, pa.binary()).slice(0), "KEY_CONVERTER", expected)
