"""rows of the recorded MariaDB and MySQL, by their own clients and by ours -> one text per value, to compare."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

# What the sink has as text, or as bytes, in MariaDB's own words.
EXPRESSIONS = {
    "t0": "CONCAT(t0, '.000000')",
    "t3": "CONCAT(t3, '000')",
    "bn": "LOWER(HEX(bn))",
    "bi": "LOWER(HEX(bi))",
    "bl": "LOWER(HEX(bl))",
    "po": "CONCAT(ST_X(po), ' ', ST_Y(po))",
    "b1": "b1 + 0",
    "ve": "FROM_VECTOR(ve)",
}
# What nothing tells from numbers and texts where events come without schemas.
_UNTOLD = "bu de dw fl do bo b1 bn bi bl po js jn ve da d0 d6 s0 s6 t0 t3 t6 ye"
UNTOLD = frozenset(_UNTOLD.split(" "))
MOMENTS = {"d0", "d6", "s0", "s6"}
FLOATS = {"fl": np.float32, "do": np.float64}


# Avro's converter, and ExtractNewRecordState by default, put a column's default where a null was.
_NULL_IS_DEFAULT = {"unwrap", "avro"}


def lose_nulls(variant: str, table: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows as a variant tells them: which nulls were nulls nobody can know."""
    lost = variant in _NULL_IS_DEFAULT and table == "evolve"
    return [{**row, "b": "new"} if lost and row["b"] is None else dict(row) for row in rows]


def exact_text(name: str, text: str | None) -> str | None:
    """The text with as many digits as ours has."""
    if text is None:
        return None
    if name in FLOATS:
        return repr(float(FLOATS[name](text)))
    if name == "jn":
        return _same_json(text)
    if name == "ve":
        return str([float(np.float32(number)) for number in json.loads(text)])
    if text == "24:00:00.000000":
        # A whole day has one text for all databases.
        return "24:00:00"
    return f"{text}.000000" if name in MOMENTS and "." not in text else text


def row_text(name: str, value: Any) -> str | None:  # noqa: PLR0911 - one case per type
    """A value of a table, or of decoded events, in MariaDB's words."""
    if value is None:
        return None
    if isinstance(value, bytes | bytearray):
        return bytes(reversed(value)).hex().lstrip("0") or "0" if name == "bn" else bytes(value).hex()
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Mapping):
        return f"{value['x']:g} {value['y']:g}"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    if name in FLOATS:
        return repr(float(FLOATS[name](value)))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return str([float(np.float32(number)) for number in value])
    return _same_json(value) if name == "jn" else str(value)


def _same_json(text: str) -> str:
    """MySQL keeps a document, not its text."""
    return json.dumps(json.loads(text), sort_keys=True)
