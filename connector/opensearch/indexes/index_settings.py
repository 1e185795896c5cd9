"""Settings of an index, and of one that takes its place -> those that the second one has not (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_OF_ONE_INDEX = frozenset(
    {"uuid", "creation_date", "provided_name", "version", "resize", "history_uuid", "gc_deletes", "blocks"}
)
"""What OpenSearch gives each index, a block, which is for a while, and what is by our own options."""
_ALLOCATION = "routing.allocation.initial_recovery."


def find_lost_settings(before: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    """Return the names of settings that an index has, and the fresh one has not, or has with another value.

    Both are as OpenSearch answers: objects within objects, below `index`.
    """
    kept = dict(_flatten(fresh.get("index", {})))
    return sorted(
        name
        for name, value in _flatten(before.get("index", {}))
        if name.partition(".")[0] not in _OF_ONE_INDEX and not name.startswith(_ALLOCATION) and kept.get(name) != value
    )


def _flatten(settings: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value
