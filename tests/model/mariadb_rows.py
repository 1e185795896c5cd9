"""rows of the recorded MariaDB, by its own client and by ours -> one text per value, so that they compare."""

from __future__ import annotations

from collections.abc import Mapping
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
}
# What nothing tells from numbers and texts where events come without schemas.
_UNTOLD = "bu de dw fl do bo b1 bn bi bl po js da d0 d6 s0 s6 t0 t3 t6 ye"
UNTOLD = frozenset(_UNTOLD.split(" "))
MOMENTS = {"d0", "d6", "s0", "s6"}
FLOATS = {"fl": np.float32, "do": np.float64}


def exact_text(name: str, text: str | None) -> str | None:
    """The text with as many digits as ours has."""
    if text is None:
        return None
    if name in FLOATS:
        return repr(float(FLOATS[name](text)))
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
    return str(value)
