"""Snapshots + positions of those that read and write a table -> which snapshots may expire. Pure.

All that a reader has still to read stays, and the snapshot it has come to, against which the next one is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import attrs
import orjson

from connector.maintenance.table_state import SnapshotSummary

IN_FLIGHT_MS = 600_000
"""Snapshots of the last minutes stay in any case: batches and queries read them."""

_COMMIT_MS = 120_000
"""Iceberg asks what time it is when it commits."""


@attrs.frozen
class ReaderPosition:
    """Up to where a source has read a table; `name` is the source's."""

    name: str
    snapshot_id: int


@attrs.frozen
class Expiry:
    """What may go: snapshots older than `older_than_ms`, but for the newest `retain_last`.

    `snapshots` counts those of the branch; none may go where `older_than_ms` is 0. `held_by` names the reader that
    holds up expiry longest, with how long it is behind (seconds); empty for none.
    """

    older_than_ms: int
    retain_last: int
    snapshots: int
    held_by: str = ""
    lag_s: int = 0


def parse_reader_positions(rows: Mapping[str, str], table_uuid: str) -> Iterator[ReaderPosition]:
    """Yield where sources stand in a table, from the rows of an offsets table.

    A row's id is `<connector>/<table>`, by a name that the table may no longer have, or not in this catalog. Sources
    tell the snapshot at the top, and the one that they read in full. In a source's own row, whose id is its name, are
    the snapshots that signals asked for, each with the one that it is of.
    """
    for key, text in rows.items():
        name, _, of = key.partition("/")
        if not text:
            continue
        document = orjson.loads(text)
        if not isinstance(document, dict):
            continue
        stored = [document] if of else _asked_snapshots(document)
        for one in stored:
            if one.get("table-uuid") == table_uuid:
                places = (one.get("snapshot-id"), (one.get("full-read") or {}).get("snapshot-id"))
                yield from (ReaderPosition(name, int(place)) for place in places if place is not None)


def _asked_snapshots(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return how far a source's snapshots on demand are; those that have not begun need nothing yet."""
    asked = document.get("snapshots") or ()
    return [one["progress"] for one in asked if one.get("progress")]


def plan_expiry(
    ancestors: Sequence[SnapshotSummary],
    readers: Iterable[ReaderPosition],
    writers: Iterable[int],
    *,
    others: Sequence[Sequence[SnapshotSummary]] = (),
    own_ages_ms: Sequence[int | None] = (),
    own_least: int | None = None,
    now_ms: int,
    age_ms: int,
    retain_last: int,
    in_flight_ms: int = IN_FLIGHT_MS,
) -> Expiry:
    """Return which snapshots may go.

    Args:
        ancestors: the branch's snapshots, newest first.
        readers: where sources stand; a position that is on no branch any more holds nothing up.
        writers: snapshots that sinks have to find again: their newest commits, the base of a batch in flight.
        others: the snapshots of the table's other branches, which expire by the same limit.
        own_ages_ms: of the branch, and of each other: how old snapshots get there by the branch's own retention, which
            Iceberg goes by instead of the limit; None without one. Where that lets go what is needed nothing may go.
        own_least: how many snapshots the branch's own retention keeps, whatever `retain_last` says; None without one.
        now_ms: the time.
        age_ms: younger ones stay.
        retain_last: so many stay.
        in_flight_ms: how long a batch or query may read a snapshot.
    """
    limit = max(1, now_ms - max(age_ms, in_flight_ms))
    held_by, lag_ms = "", 0
    asked, needed = list(readers), set(writers)
    is_lost = False
    for branch, own_ms in zip_longest((ancestors, *others), own_ages_ms):
        by_id = {snapshot.snapshot_id: place for place, snapshot in enumerate(branch)}
        for reader in asked:
            place = by_id.get(reader.snapshot_id)
            if place is None:
                continue
            oldest_ms = _oldest_ms(branch[: place + 1])
            limit, is_lost = min(limit, oldest_ms), is_lost or (place > 0 and _lets_go(own_ms, oldest_ms, now_ms))
            # A source that has read everything is not late, however old the newest snapshot is.
            behind = now_ms - branch[place - 1].timestamp_ms if place else 0
            if behind > lag_ms:
                held_by, lag_ms = reader.name, behind
    own_ms = next(iter(own_ages_ms), None)
    oldest = max((place for place, one in enumerate(ancestors) if one.snapshot_id in needed), default=-1)
    if oldest >= 0:
        oldest_ms = _oldest_ms(ancestors[: oldest + 1])
        limit, is_lost = min(limit, oldest_ms), is_lost or (oldest > 0 and _lets_go(own_ms, oldest_ms, now_ms))
    if is_lost:
        return Expiry(0, max(1, retain_last), 0, held_by, lag_ms // 1000)
    ends = limit if own_ms is None else now_ms - own_ms
    going = sum(snapshot.timestamp_ms < ends for snapshot in ancestors[max(1, own_least or retain_last) :])
    return Expiry(limit, max(1, retain_last), going, held_by, lag_ms // 1000)


def newest_commits(ancestors: Sequence[SnapshotSummary], name_key: str) -> Iterator[int]:
    """Yield the newest commit of each sink that wrote to the table; `name_key` is where summaries name it."""
    for _, place in _newest_places(ancestors, name_key):
        yield ancestors[place].snapshot_id


def find_idle_sink(
    ancestors: Sequence[SnapshotSummary], name_key: str, older_than_ms: int, now_ms: int
) -> tuple[str, int] | None:
    """Return the sink whose newest commit delays expiry, as nothing else does, and for how long (seconds) others have
    committed since; None without one. `older_than_ms` is what `plan_expiry` found.
    """
    for name, place in _newest_places(ancestors, name_key):
        if place and _oldest_ms(ancestors[: place + 1]) == older_than_ms:
            return name, (now_ms - ancestors[place - 1].timestamp_ms) // 1000
    return None


def _newest_places(ancestors: Sequence[SnapshotSummary], name_key: str) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    for place, snapshot in enumerate(ancestors):
        name = snapshot.summary.get(name_key)
        if name is not None and name not in seen:
            seen.add(name)
            yield name, place


def _lets_go(own_age_ms: int | None, needed_ms: int, now_ms: int) -> bool:
    """Tell whether a branch's own retention does not keep what is needed of it, and is not its newest snapshot, which
    stays; a commit may take a while.
    """
    return own_age_ms is not None and needed_ms < now_ms - own_age_ms + _COMMIT_MS


def _oldest_ms(snapshots: Sequence[SnapshotSummary]) -> int:
    """Clocks differ: what is needed may be dated after what came behind it, and with that one it would go, too."""
    return min(snapshot.timestamp_ms for snapshot in snapshots)
