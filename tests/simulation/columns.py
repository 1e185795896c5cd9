"""An event -> what it says of each column of its row; a row, and what events say -> the columns that differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

VALUES = ("name", "n", "region")
DELETED = "__deleted"
_PARTS = ("db", "schema", "table")


def find_columns(value: bytes) -> Mapping[str, Any]:
    """Take an event apart as a sink does; one without an image is of no row."""
    event = json.loads(value)
    image, source = event["after"] or event["before"], event["source"]
    if image is None:
        return {}
    told = {"__op": event["op"], "__ts_ns": event.get("ts_ns"), DELETED: str(event["op"] == "d").lower()}
    told |= {f"__source_{name}": one for name, one in source.items()} | {f"__{name}": source[name] for name in _PARTS}
    return {**image, **told}


def differing(row: Mapping[str, Any], events: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """The columns in which a row is not as the event says that it is most like; none where there is no event."""
    wrong = [[name for name in names if row.get(name) != told.get(name)] for told in events]
    return min(wrong, key=len, default=[])
