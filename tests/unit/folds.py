"""A fold -> the changes that a map task hands on of it, as parts."""

from __future__ import annotations

from collections.abc import Sequence

from connector.sink.fold.fold import find_rows_to_keep
from connector.sink.model.change_rows import ChangeBatch, FoldedChanges, gather
from serde.arrays import Ints


def select_rows_to_keep(
    folded: FoldedChanges, keys: Sequence[str], also: Ints | None = None, *, numbered: bool = False
) -> list[ChangeBatch]:
    """What a later fold still needs (`find_rows_to_keep`)."""
    return gather(folded.parts, find_rows_to_keep(folded, keys, also, numbered=numbered))
