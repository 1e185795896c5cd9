"""A table's lease row -> whether its maintenance is ours. Pure."""

from __future__ import annotations

import attrs
import orjson

LEASE_MS = 120_000
"""How long a lease lasts that is not renewed; renewed at a third of it."""

LOST_RACES = 3
"""After so many lost commits of one task the work is handed to the sink."""


@attrs.frozen
class Lease:
    """Who maintains a table, until when (epoch milliseconds); `handed` are tasks that the sink is asked to do."""

    owner: str = ""
    until_ms: int = 0
    handed: tuple[str, ...] = ()

    def json(self) -> str:
        """Return the text that is stored."""
        document = {"owner": self.owner, "until-ms": self.until_ms, "handed": list(self.handed)}
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()

    @staticmethod
    def parse(text: str | None) -> Lease:
        """Read what `json` wrote; no lease from no text."""
        if not text:
            return Lease()
        found = orjson.loads(text)
        return Lease(found["owner"], found["until-ms"], tuple(found.get("handed", ())))

    def is_free(self, owner: str, now_ms: int) -> bool:
        """Tell whether this owner may have it."""
        return self.owner in ("", owner) or self.until_ms <= now_ms

    def taken(self, owner: str, now_ms: int) -> Lease:
        """Return it as this owner holds it."""
        return attrs.evolve(self, owner=owner, until_ms=now_ms + LEASE_MS)

    def released(self) -> Lease:
        """Return it without an owner."""
        return attrs.evolve(self, owner="", until_ms=0)
