"""what is wrong with a configuration -> one line each: `FILE:LINE: key: what is wrong; what to do`."""

from __future__ import annotations

import attrs

AFTER_ALL_LINES = 2**31


@attrs.frozen(order=True)
class ConfigFault:
    """A line of a ConfigError; ordered by layer, line and text, faults without a line last in their layer."""

    layer: int
    line: int
    text: str


def format_fault(where: str, key: str, what: str, todo: str) -> str:
    """The text of a fault; an empty key is left out."""
    return f"{where}: {key}: {what}; {todo}" if key else f"{where}: {what}; {todo}"
