"""catalog -> log lines: the commits of a program that says none itself, as the home-made contenders say theirs.

Which share of the topic's events a commit holds is its share of all rows added: a stream is alike from start to end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.log_lines import say
from benchmarks.metadata import MetadataWatch

_POLL_S = 0.05


class CommitWatch(MetadataWatch):
    """Says each commit that added rows, at the moment at which the catalog points to it."""

    def __init__(self, warehouse: Path, table: str) -> None:
        """Describe what to watch; nothing runs yet."""
        super().__init__(warehouse, table, _POLL_S)
        self.added: list[int] = []
        self.changed_s = time.monotonic()
        self._seen: set[int] = set()

    def note(self, metadata: bytes, at_s: float) -> None:
        """Say what is new."""
        del at_s
        for snapshot in json.loads(metadata).get("snapshots", []):
            rows = int(snapshot["summary"].get("added-records", 0))
            if snapshot["snapshot-id"] in self._seen or not rows:
                continue
            now_s = time.monotonic()
            say("batch committed", batch=len(self.added), seconds=round(now_s - self.changed_s, 3))
            self._seen.add(snapshot["snapshot-id"])
            self.added.append(rows)
            self.changed_s = now_s

    def tell(self, events: int, offsets: Mapping[str, int]) -> None:
        """Stop watching, and say how many of the events each commit held, and how far the topic was read."""
        self.finish()
        self.look()
        for batch, share in enumerate(shares(events, self.added)):
            say("batch read", batch=batch, events=share, offsets=offsets)


def shares(events: int, added: Sequence[int]) -> list[int]:
    """Divide `events` as the rows were added; the whole is kept."""
    total, rows, before, parts = sum(added), 0, 0, []
    for count in added:
        rows += count
        until = round(events * rows / total)
        parts.append(until - before)
        before = until
    return parts
