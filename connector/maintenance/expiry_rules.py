"""Snapshots + positions of those that read and write a table -> which snapshots may expire. Pure.

All that a reader has still to read stays, and the snapshot it has come to, against which the next one is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import attrs
import orjson

from connector.maintenance.foreign_sinks import FOREIGN_MS, name_foreign_sinks
from connector.maintenance.table_state import SnapshotSummary

IN_FLIGHT_MS = 600_000
"""Snapshots of the last minutes stay in any case: batches and queries read them."""

_COMMIT_MS = 120_000
"""How long a commit may take: Iceberg asks what time it is when it commits."""


@attrs.frozen
class ReaderPosition:
    """Up to where a source has read a table, None where it had no snapshot yet; `name` is the source's."""

    name: str
    snapshot_id: int | None


@attrs.frozen
class BranchHistory:
    """The snapshots of a branch, newest first, and its own retention, which Iceberg goes by instead of any limit.

    `max_age_ms` and `min_snapshots` are None where the branch has none. `pinned` are snapshots that a tag or another
    branch stands at, which stay.
    """

    snapshots: Sequence[SnapshotSummary]
    max_age_ms: int | None = None
    min_snapshots: int | None = None
    pinned: Collection[int] = frozenset()


@attrs.frozen
class ExpiryRule:
    """What stays though nobody needs it: snapshots younger than `age_ms`, and the newest `retain_last`.

    `in_flight_ms` is how long a batch or query may read a snapshot.
    """

    age_ms: int
    retain_last: int
    in_flight_ms: int = IN_FLIGHT_MS


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
        try:
            document = orjson.loads(text or "null")
        except orjson.JSONDecodeError:
            continue  # what another program keeps there
        if not isinstance(document, dict):
            continue
        stored = [document] if of else _asked_snapshots(document)
        for one in stored:
            if one.get("table-uuid") == table_uuid and "snapshot-id" in one:
                yield from (ReaderPosition(name, place) for place in _read_places(one))


def _read_places(stored: Mapping[str, Any]) -> list[int | None]:
    """Return the snapshots where a source stands; None alone where the table had none when it began."""
    places = (stored["snapshot-id"], (stored.get("full-read") or {}).get("snapshot-id"))
    return [int(place) for place in places if place is not None] or [None]


def _asked_snapshots(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return how far a source's snapshots on demand are; those that have not begun need nothing yet."""
    asked = document.get("snapshots") or ()
    return [one["progress"] for one in asked if one.get("progress")]


def plan_expiry(
    branches: Sequence[BranchHistory],
    readers: Iterable[ReaderPosition],
    writers: Iterable[int],
    rule: ExpiryRule,
    now_ms: int,
) -> Expiry:
    """Return which snapshots may go; none where a branch's own retention does not keep what is needed of it.

    Args:
        branches: the branch that is followed, and the table's others, which expire by the same limit.
        readers: where sources stand; a position that is on no branch any more holds nothing up, nor does one before the
            first snapshot once that is gone.
        writers: snapshots that sinks have to find again: their newest commits, the base of a batch in flight.
        rule: what stays in any case.
        now_ms: the time.
    """
    followed, readers = branches[0], list(readers)
    by_readers = [need for branch in branches for need in _find_needs(branch, readers)]
    needs = [*by_readers, *_find_needs(followed, [ReaderPosition("", snapshot_id) for snapshot_id in writers])]
    lags = [(need.lag_ms(now_ms), need.reader) for need in by_readers]
    lag_ms, held_by = max(lags, default=(0, ""), key=itemgetter(0))
    expiry = Expiry(0, max(1, rule.retain_last), 0, held_by if lag_ms > 0 else "", max(0, lag_ms) // 1000)
    if any(need.is_let_go(now_ms) for need in needs):
        return expiry
    limit_ms = max(1, now_ms - max(rule.age_ms, rule.in_flight_ms))
    limit_ms = min([limit_ms, *(need.oldest_ms for need in needs)])
    end_ms = limit_ms if followed.max_age_ms is None else now_ms - followed.max_age_ms
    least = max(1, followed.min_snapshots or rule.retain_last)
    old = (snapshot for snapshot in followed.snapshots[least:] if snapshot.timestamp_ms < end_ms)
    going = sum(snapshot.snapshot_id not in followed.pinned for snapshot in old)
    return attrs.evolve(expiry, older_than_ms=limit_ms, snapshots=going)


@attrs.frozen
class _Need:
    """That somebody needs a snapshot of a branch, and all after it; `place` counts from the newest one.

    `unread` is the place of the oldest one that is still to be read, below 0 for none.
    """

    branch: BranchHistory
    place: int
    reader: str
    unread: int

    @property
    def oldest_ms(self) -> int:
        return _oldest_ms(self.branch.snapshots[: self.place + 1])

    def lag_ms(self, now_ms: int) -> int:
        """A source that has read everything is not late, however old the newest snapshot is."""
        return now_ms - self.branch.snapshots[self.unread].timestamp_ms if self.unread >= 0 else 0

    def is_let_go(self, now_ms: int) -> bool:
        """Tell whether the branch's own retention may let it go by the commit; the newest snapshot stays."""
        age_ms = self.branch.max_age_ms
        return self.place > 0 and age_ms is not None and self.oldest_ms < now_ms - age_ms + _COMMIT_MS


def _find_needs(branch: BranchHistory, readers: Iterable[ReaderPosition]) -> Iterator[_Need]:
    places = {snapshot.snapshot_id: place for place, snapshot in enumerate(branch.snapshots)}
    oldest = len(branch.snapshots) - 1
    for reader in readers:
        if reader.snapshot_id in places:
            place = places[reader.snapshot_id]
            yield _Need(branch, place, reader.name, place - 1)
        elif reader.snapshot_id is None and branch.snapshots and branch.snapshots[oldest].is_first:
            yield _Need(branch, oldest, reader.name, oldest)


def newest_commits(ancestors: Sequence[SnapshotSummary], name_key: str) -> Iterator[int]:
    """Yield the newest commit of each sink that wrote to the table; `name_key` is where summaries name it."""
    for _, place in _newest_places(ancestors, _naming(name_key)):
        yield ancestors[place].snapshot_id


def newest_foreign_commits(ancestors: Sequence[SnapshotSummary], now_ms: int) -> Iterator[int]:
    """Yield the newest commit of each sink of another program that has its offsets there, and may still be used."""
    for _, place in _newest_foreign_places(ancestors, now_ms):
        yield ancestors[place].snapshot_id


def find_idle_sink(
    ancestors: Sequence[SnapshotSummary], name_key: str, older_than_ms: int, now_ms: int
) -> tuple[str, int] | None:
    """Return the sink whose newest commit delays expiry, as nothing else does, and for how long (seconds) others have
    committed since; None without one. `older_than_ms` is what `plan_expiry` found.
    """
    own = _newest_places(ancestors, _naming(name_key))
    for name, place in chain(own, _newest_foreign_places(ancestors, now_ms)):
        if place and _oldest_ms(ancestors[: place + 1]) == older_than_ms:
            return name, (now_ms - ancestors[place - 1].timestamp_ms) // 1000
    return None


def _naming(name_key: str) -> Callable[[Mapping[str, str]], Iterable[str]]:
    return lambda summary: (summary[name_key],) if name_key in summary else ()


def _newest_foreign_places(ancestors: Sequence[SnapshotSummary], now_ms: int) -> Iterator[tuple[str, int]]:
    for name, place in _newest_places(ancestors, name_foreign_sinks):
        if now_ms - ancestors[place].timestamp_ms <= FOREIGN_MS:
            yield name, place


def _newest_places(
    ancestors: Sequence[SnapshotSummary], name_sinks: Callable[[Mapping[str, str]], Iterable[str]]
) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    for place, snapshot in enumerate(ancestors):
        for name in name_sinks(snapshot.summary):
            if name not in seen:
                seen.add(name)
                yield name, place


def _oldest_ms(snapshots: Sequence[SnapshotSummary]) -> int:
    """Clocks differ: what is needed may be dated after what came behind it, and with that one it would go, too."""
    return min(snapshot.timestamp_ms for snapshot in snapshots)
