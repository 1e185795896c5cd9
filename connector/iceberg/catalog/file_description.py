"""A written file's JSON (Iceberg's ContentFileParser reads it) -> what the sink itself asks of it.

Tasks hand the JSON to the driver as bytes; it goes to Iceberg as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import orjson


@attrs.frozen
class FileDescription:
    """A data or delete file. Bounds are by field id, in Iceberg's binary form; delete files tell none."""

    path: str
    content: str
    referenced_data_file: str | None = None
    lower_bounds: Mapping[int, bytes] = attrs.field(factory=dict)
    upper_bounds: Mapping[int, bytes] = attrs.field(factory=dict)

    @staticmethod
    def parse(document: bytes) -> FileDescription:
        """Read a description."""
        file = orjson.loads(document)
        return FileDescription(
            file["file-path"],
            file["content"],
            file.get("referenced-data-file"),
            _decode_bounds(file.get("lower-bounds")),
            _decode_bounds(file.get("upper-bounds")),
        )

    @property
    def is_data(self) -> bool:
        """Whether it holds rows; else it deletes some."""
        return self.content == "data"


def _decode_bounds(bounds: Mapping[str, Sequence[Any]] | None) -> dict[int, bytes]:
    if bounds is None:
        return {}
    return {i: bytes.fromhex(text) for i, text in zip(bounds["keys"], bounds["values"], strict=True)}
