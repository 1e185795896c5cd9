"""What a name stood for when documents were brought there + what it stands for now -> whether they still are (pure).

OpenSearch makes an index by itself for the first document sent to a name that has none, and dynamic mapping makes its
fields: a deleted index would come back with later changes only, and look whole. Its id tells it from the old one.
"""

from __future__ import annotations

from collections.abc import Mapping

LOST_INDEX_REMEDY = (
    "fill it again: `icebridge offsets reset` (from Kafka, what the topics hold) or `icebridge reindex` (from Iceberg);"
    " an index that OpenSearch made by itself meanwhile can be deleted"
)

IndexIds = Mapping[str, str]
"""The ids (`index.uuid`) of the indexes that a name stands for, by their own names."""


def explain_loss(name: str, before: IndexIds, now: IndexIds) -> str | None:
    """Say why documents that were brought under a name are gone; None where they are not.

    An alias may be rolled over, and lose old indexes to retention; an index may become an alias (`icebridge reindex`).

    Args:
        name: of an index, alias or data stream.
        before: what it stood for; empty where nothing was noted.
        now: what it stands for; empty where there is no such name.
    """
    if not before:
        return None
    if not now:
        return f"index {name} is gone, and the documents that it had; {LOST_INDEX_REMEDY}"
    recreated = sorted(index for index, uuid in now.items() if before.get(index, uuid) != uuid)
    if recreated:
        indexes = ", ".join(recreated)
        return (
            f"index {indexes} was deleted and made again, and is without the documents that it had; {LOST_INDEX_REMEDY}"
        )
    if list(now) == [name] and name not in before:
        stood = ", ".join(sorted(before))
        return f"{name} was an alias of {stood}, and is an index now, without their documents; {LOST_INDEX_REMEDY}"
    return None


def encode_ids(ids: IndexIds) -> str:
    """Return ids as a position keeps them."""
    return " ".join(f"{name}:{uuid}" for name, uuid in sorted(ids.items()))


def decode_ids(text: str) -> IndexIds:
    """Read what `encode_ids` gave."""
    pairs = (part.rpartition(":") for part in text.split())
    return {name: uuid for name, _, uuid in pairs}
