"""A table's lease row -> whether its maintenance is ours. Pure."""

from __future__ import annotations

from collections.abc import Collection

import attrs
import orjson

from connector.maintenance.file_counts import FileCounts

LEASE_MS = 120_000
"""How long a lease lasts that is not renewed; renewed at a third of it."""

LOST_RACES = 3
"""After so many lost commits of one task the work is handed to the sink."""


MOST_LEFT = 100
"""Of so many unfinished runs the folders are remembered; those before are left to the orphans."""


@attrs.frozen
class UnfinishedRun:
    """A run that did not come to its end; after `until_ms` (epoch milliseconds) it begins no commit."""

    run: str
    until_ms: int

    def can_commit(self, newest_ms: int) -> bool:
        """Tell whether a commit of it may be on its way: each demands the snapshot that it found as the newest one.

        `newest_ms` is when that of now was made. Clocks may differ by less than a lease lasts from its last renewal.
        """
        return newest_ms <= self.until_ms


@attrs.frozen
class Lease:
    """Who maintains a table, until when (epoch milliseconds); `handed` are tasks that the sink is asked to do.

    `run` names the run at work, `left` are those that did not come to their end: their files are still to be removed.
    `counts` is what the last run counted, for whoever looks at the table next.
    """

    owner: str = ""
    until_ms: int = 0
    handed: tuple[str, ...] = ()
    run: str = ""
    left: tuple[UnfinishedRun, ...] = ()
    counts: FileCounts = FileCounts()

    def json(self) -> str:
        """Return the text that is stored."""
        document = {
            "owner": self.owner,
            "until-ms": self.until_ms,
            "handed": list(self.handed),
            "run": self.run,
            "left": [[one.run, one.until_ms] for one in self.left],
            "counts": self.counts.document(),
        }
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()

    @staticmethod
    def parse(text: str | None) -> Lease:
        """Read what `json` wrote; no lease from no text."""
        if not text:
            return Lease()
        found = orjson.loads(text)
        left = tuple(UnfinishedRun(*one) for one in found.get("left", ()))
        counts = FileCounts.parse(found.get("counts", {}))
        handed = tuple(found.get("handed", ()))
        return Lease(found["owner"], found["until-ms"], handed, found.get("run", ""), left, counts)

    def is_free(self, owner: str, now_ms: int) -> bool:
        """Tell whether this owner may have it."""
        return self.owner in ("", owner) or self.until_ms <= now_ms

    def take(self, owner: str, now_ms: int, run: str = "") -> Lease:
        """Return it as this owner holds it for a run; a run that was not at its end is left."""
        cut = (UnfinishedRun(self.run, self.until_ms),) if self.run and self.run != run else ()
        left = (*self.left, *cut)[-MOST_LEFT:]
        return attrs.evolve(self, owner=owner, until_ms=now_ms + LEASE_MS, run=run, left=left)

    def renew(self, owner: str, now_ms: int) -> Lease:
        """Return it as this owner holds it for longer."""
        return self.take(owner, now_ms, self.run)

    def release(self, *, failed: bool = False, counts: FileCounts | None = None) -> Lease:
        """Return it without an owner, with what the run counted; a run of which something failed is left."""
        cut = (UnfinishedRun(self.run, self.until_ms),) if failed and self.run else ()
        left = (*self.left, *cut)[-MOST_LEFT:]
        return attrs.evolve(self, owner="", until_ms=0, run="", left=left, counts=counts or self.counts)

    def without(self, runs: Collection[str]) -> Lease:
        """Return it once the files of some unfinished runs are removed."""
        return attrs.evolve(self, left=tuple(one for one in self.left if one.run not in runs))
