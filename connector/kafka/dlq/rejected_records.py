"""A record that cannot be used -> its place and reason, from executors to the driver, which writes its dead letter."""

from __future__ import annotations

from typing import Protocol

BATCH_STAGE = "KAFKA_CONSUME"
"""The stage of letters for a whole record batch that cannot be read: their value is the batch as it is in the log."""


class RejectedRecord(Protocol):
    """A record by reference, and why it cannot be used."""

    @property
    def topic(self) -> str: ...  # noqa: D102
    @property
    def partition(self) -> int: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def stage(self) -> str: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102


RecordCoordinates = tuple[str, int, int]


def record_coordinates(letter: RejectedRecord) -> RecordCoordinates:
    """Return where a letter's record is: topic, partition, offset."""
    return letter.topic, letter.partition, letter.offset
