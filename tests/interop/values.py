"""a PostgreSQL table -> its rows as Python values, exact: what another store's rows are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any

import numpy as np

from tests.interop.postgres import Postgres

Row = dict[str, Any]
# By the type's first words; what is not here is right as JSON has it: integers, texts, booleans, numbers as Decimal.
_READ: Mapping[str, Callable[[Any], Any]] = {
    "bytea": lambda text: bytes.fromhex(text[2:]),
    "date": date.fromisoformat,
    "double precision": float,
    "real": lambda number: float(np.float32(number)),
    "time(": time.fromisoformat,
    "timestamp(": datetime.fromisoformat,
}


def values(postgres: Postgres, table: str) -> list[Row]:
    """All rows; floats as the Python float that equals them, bytes, dates and times as Python's, lists as lists."""
    types = postgres.types(table)
    return [{name: _value(value, types[name]) for name, value in row.items()} for row in postgres.rows(table)]


def _value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind.endswith("[]"):
        return [_value(item, kind.removesuffix("[]")) for item in value]
    read = next((read for start, read in _READ.items() if kind.startswith(start)), None)
    return value if read is None else read(value)
