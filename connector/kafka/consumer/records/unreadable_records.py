"""Bytes that are no records -> the error that says why, and the offsets that it concerns (pure)."""

from __future__ import annotations

import attrs


class UnreadableRecords(ValueError):
    """The bytes are not what the protocol says."""


@attrs.frozen
class UnreadableBatch:
    """A record batch that cannot be read: the offsets from `first` to `last` that were asked for, and the reason."""

    first: int
    last: int
    reason: str
