"""An envelope with a value beside its row that cannot be read -> the same event without it, or read in another way.

`source` and `transaction` say when and where a row changed. What of them tells no order costs an event nothing but
itself. What tells the order, dates and places, is never taken for unknown: the event is a dead letter then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from serde.events.kinds.sourceless import is_sourceless_document
from serde.events.positions.event_times import SOURCE_DATES
from serde.events.positions.origins import ORIGIN_FIELDS
from serde.events.positions.source_positions import POSITION_FIELDS, TRANSACTION_FIELDS

_IMAGES = ("before", "after")
_AROUND = ("source", "transaction")
_DEPTH = 2
_DIGITS = re.compile(r"-?[0-9]{1,19}")
_INT64 = range(-(2**63), 2**63)
_ORDER = frozenset(
    {
        *(("source", name) for name in (*ORIGIN_FIELDS, *POSITION_FIELDS, "collection")),
        ("transaction", "total_order"),
        *(tuple(path.split(".")) for path in TRANSACTION_FIELDS),
    }
)


def mend_metadata(event: Mapping[str, Any], at: tuple[str, ...]) -> dict[str, Any] | None:
    """Return an envelope in which the value at `at`, which did not fit its type, does; None where it may not.

    Numbers that were written as text are numbers. Dates beyond 64 bits are unknown, as are those that a more precise
    one stands beside, and whatever tells no order. Cost: Python, for events that cannot be read otherwise.
    """
    if len(at) < _DEPTH or at[0] not in _AROUND or "op" not in event or not any(name in event for name in _IMAGES):
        return None
    around = event.get(at[0])
    value = around.get(at[1]) if isinstance(around, dict) else None
    if not isinstance(around, dict) or value is None:
        return None
    if not isinstance(event.get("source"), dict) and not is_sourceless_document(event):
        return None
    if isinstance(value, str) and _DIGITS.fullmatch(value) and int(value) in _INT64:
        return {**event, at[0]: {**around, at[1]: int(value)}}
    return {**event, at[0]: {**around, at[1]: None}} if _may_be_unknown(around, at[:_DEPTH], value) else None


def _may_be_unknown(around: Mapping[str, Any], at: tuple[str, ...], value: object) -> bool:
    if at[0] == "source" and at[1] in SOURCE_DATES:
        finer = SOURCE_DATES[: SOURCE_DATES.index(at[1])]
        too_large = isinstance(value, int) and value not in _INT64
        return too_large or any(isinstance(around.get(name), int) for name in finer)
    return at not in _ORDER
