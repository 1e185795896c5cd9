"""Bytes that are no records -> the error that says why, and the offsets that it concerns (pure)."""

from __future__ import annotations

import attrs

BATCH_REMEDY = (
    "see what the broker has there (Kafka's DumpLogSegments); to continue after it, commit an offset after it for "
    "the sink's group, and take that over by `icebridge offsets reset FILE --to group --execute`"
)
"""For a record batch that cannot be read, where the run ends at it."""


class UnreadableRecords(ValueError):
    """The bytes are not what the protocol says."""


@attrs.frozen
class UnreadableBatch:
    """A record batch that cannot be read: the offsets from `first` to `last` that were asked for, and the reason."""

    first: int
    last: int
    reason: str
