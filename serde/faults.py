"""Bytes that cannot be read -> faults: a record is named by its row and a reason, and the others continue.

A reason names the field path and the schema type. It never holds content of the record.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

Stage = Literal["KEY_CONVERTER", "VALUE_CONVERTER", "TASK_PUT"]


@frozen
class RecordError:
    """One record that could not be read: `row` is the index in the array that was given to `decode`."""

    row: int
    stage: Stage
    reason: str


class Unfit(ValueError):
    """A value does not fit its schema type; the text is a reason without content,
    `at` the field path from inside out.
    """

    def __init__(self, reason: str, at: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at

    def under(self, name: str) -> Unfit:
        """The same seen from the parent field `name`."""
        return Unfit(self.reason, (name, *self.at))

    def __str__(self) -> str:
        return f"field {'.'.join(self.at)}: {self.reason}" if self.at else self.reason
