"""a random number generator -> the changes that a source makes: rows come, change, get another key, go and come again.

Changes are those of `tests.model.events.Database`; each is legal after those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from attrs import frozen

from tests.model.events import Database, Row, row

Change = tuple[Any, ...]


def numbered(rng: Random, key: int) -> Row:
    """A row with a number, and a name that says it too."""
    n = rng.randrange(10**6)
    return row(key, f"n{n}", n)


@frozen
class Life:
    """How rows live: ids below `keys`, and how likely each thing happens to a row that is there or comes.

    An existing row is `updated`, else `moved` to a free key, else deleted, and in the same transaction made `again`.
    A new row is deleted in the same transaction with the probability `brief`.
    """

    keys: int
    updated: float = 0.7
    moved: float = 0.5
    again: float = 0.3
    brief: float = 0.0
    made: Callable[[Random, int], Row] = numbered

    def step(self, rng: Random, alive: set[int]) -> list[Change]:
        """What happens to one random row, one change or two; `alive` follows."""
        key, other = rng.randrange(self.keys), rng.randrange(self.keys)
        if key not in alive:
            if rng.random() < self.brief:
                return [("c", self.made(rng, key)), ("d", key)]
            alive.add(key)
            return [("c", self.made(rng, key))]
        if rng.random() < self.updated:
            return [("u", self.made(rng, key))]
        if other not in alive and rng.random() < self.moved:
            alive ^= {key, other}
            return [("k", key, other)]
        if rng.random() < self.again:
            return [("d", key), ("c", self.made(rng, key))]
        alive.remove(key)
        return [("d", key)]

    def steps(self, rng: Random, alive: set[int], most: int) -> list[Change]:
        """One to `most` of them, to be one transaction."""
        return [change for _ in range(rng.randint(1, most)) for change in self.step(rng, alive)]

    def live(self, rng: Random, db: Database, events: int) -> None:
        """Let the database commit transaction after transaction until so many records are written."""
        end = len(db.log) + events
        while len(db.log) < end:
            db.transaction(*self.step(rng, set(db.rows)))
