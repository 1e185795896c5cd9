"""Snapshots that came since a conversion was planned -> whether it may still be committed. Pure.

Iceberg itself checks nothing where no data file is replaced. A conversion is right as long as each data file that it
has positions of is live, and nobody else deleted rows of it by position: in format 3 a file has one vector. A rewrite
of another engine may have lost deletes, which come back only as long as nothing of ours stands upon it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from connector.iceberg.commit.commit_summary import is_harmless_rewrite

_APPEND, _REPLACE = "append", "replace"
_HARMLESS_COUNTS = ("added-data-files", "added-equality-delete-files", "added-delete-files")
_HARMFUL_COUNTS = (
    "deleted-data-files",
    "added-position-delete-files",
    "added-dvs",
    "removed-delete-files",
    "removed-position-delete-files",
    "removed-equality-delete-files",
    "removed-dvs",
)


@attrs.frozen
class LaterSnapshot:
    """A snapshot as the rule sees it; `files` reads which data files it removed, and of which it deleted rows.

    `own` tells that it is this very conversion.
    """

    snapshot_id: int
    operation: str
    summary: Mapping[str, str]
    files: Callable[[], Iterable[str]]
    own: bool = False


def may_conflict(operation: str, summary: Mapping[str, str]) -> bool:
    """Tell by a snapshot's summary whether its files have to be looked at."""
    if operation == _APPEND:
        return False
    if any(_count(summary, name) for name in _HARMFUL_COUNTS):
        return True
    return not any(name in summary for name in _HARMLESS_COUNTS)


def find_conflict(later: Iterable[LaterSnapshot], base: int, referenced: frozenset[str]) -> str | None:
    """Say what is in the way of a conversion; None if nothing is.

    Args:
        later: the snapshots that it would land on, newest first.
        base: the snapshot that it was planned on.
        referenced: the data files that it has positions of.
    """
    for snapshot in later:
        if snapshot.own:
            return "it is in the table already"
        if snapshot.snapshot_id == base:
            return None
        if snapshot.operation == _REPLACE and not is_harmless_rewrite(snapshot.summary):
            return f"snapshot {snapshot.snapshot_id} is a rewrite of another engine, whose deletes have to be looked at"
        if may_conflict(snapshot.operation, snapshot.summary) and not referenced.isdisjoint(snapshot.files()):
            return f"snapshot {snapshot.snapshot_id} changed data files that the conversion has positions of"
    return f"snapshot {base} is no ancestor of the newest one any more"


def _count(summary: Mapping[str, str], name: str) -> int:
    text = summary.get(name, "0")
    return int(text) if text.isdigit() else 1
