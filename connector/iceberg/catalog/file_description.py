"""A file that was written -> what its commit needs: Iceberg's JSON of it, and what the sink itself asks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import orjson


@attrs.frozen
class FileDescription:
    """A data or delete file.

    `json` is what Iceberg's ContentFileParser reads. Bounds are by field id, in Iceberg's binary form; delete files
    tell none.
    """

    path: str
    content: str
    json: bytes
    referenced_data_file: str | None = None
    size_bytes: int = 0
    lower_bounds: Mapping[int, bytes] = attrs.field(factory=dict)
    upper_bounds: Mapping[int, bytes] = attrs.field(factory=dict)
    spec_id: int = 0

    @staticmethod
    def of(document: Mapping[str, Any]) -> FileDescription:
        """Describe a file by its document in Iceberg's form."""
        return FileDescription(
            document["file-path"],
            document["content"],
            orjson.dumps(document),
            document.get("referenced-data-file"),
            document.get("file-size-in-bytes", 0),
            _decode_bounds(document.get("lower-bounds")),
            _decode_bounds(document.get("upper-bounds")),
            document.get("spec-id", 0),
        )

    @property
    def is_data(self) -> bool:
        """Whether it holds rows; else it deletes some."""
        return self.content == "data"

    @property
    def is_position_delete_file(self) -> bool:
        """Whether it deletes by position and is no deletion vector."""
        return self.content == "position-deletes" and orjson.loads(self.json)["file-format"].upper() != "PUFFIN"


def _decode_bounds(bounds: Mapping[str, Sequence[Any]] | None) -> dict[int, bytes]:
    if bounds is None:
        return {}
    return {i: bytes.fromhex(text) for i, text in zip(bounds["keys"], bounds["values"], strict=True)}
