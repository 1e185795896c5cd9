"""a random number generator -> transactions in which rows change their keys over and over, and take those of others.

A row goes through several keys at once, two swap theirs by way of a third, a key is another row's once it is free.
Whatever it is: rows keep their large values, which few changes tell.
"""

from __future__ import annotations

from random import Random

import attrs

from tests.model.events import Row, row
from tests.model.life import Change

LARGE = ("name", "region")
"""Columns with large values, which are sent apart from each other."""
_NULL, _SENT, _TOLD = 0.12, 0.3, 0.12
"""How often a large value is null; is a new one in an update; and is told where nothing changed it."""


def large(rng: Random, key: int) -> Row:
    """A row with a number, and two large values which say it too."""
    n = rng.randrange(10**6)
    return row(key, *_values(rng, n, LARGE[:1]), n, *_values(rng, n, LARGE[1:]))


def change(rng: Random, before: Row) -> Row:
    """The same row with another number; some of its large values are others."""
    n = rng.randrange(10**6)
    fresh = [name for name in LARGE if rng.random() < _SENT]
    return {**before, "n": n, **dict(zip(fresh, _values(rng, n, fresh), strict=True))}


def leave_out(rng: Random, before: Row, after: Row, placeholder: str) -> Row:
    """What an event says of a row: of large values that stayed as they were few. A null is no large value."""
    left = [name for name in LARGE if after[name] is not None and after[name] == before[name] and rng.random() >= _TOLD]
    return {**after, **dict.fromkeys(left, placeholder)}


def _values(rng: Random, n: int, names: tuple[str, ...] | list[str]) -> list[str | None]:
    return [None if rng.random() < _NULL else f"{name[0]}{n}" for name in names]


@attrs.define
class Moves:
    """What is done in one transaction; `alive` are the keys that have a row."""

    rng: Random
    keys: int
    alive: set[int]
    made: list[Change] = attrs.field(factory=list)

    def transaction(self, most: int) -> list[Change]:
        """One to so many things."""
        for _ in range(self.rng.randint(1, most)):
            self._act()
        return self.made

    def _act(self) -> None:
        rng, free = self.rng, sorted(set(range(self.keys)) - self.alive)
        if not self.alive or (len(free) > 2 and rng.random() < 0.4):
            self._create(rng.choice(free))
            return
        key = rng.choice(sorted(self.alive))
        kind = rng.choices(["update", "chain", "swap", "take", "again", "delete"], [4, 4, 1.2, 1.5, 1, 1])[0]
        match kind:
            case "chain" if free:
                self._chain(key, rng.randint(1, 3))
            case "swap" if free and len(self.alive) > 1:
                self._swap(key, rng.choice(sorted(self.alive - {key})), rng.choice(free))
            case "take" if len(self.alive) > 1:
                # Another row gets the key of one that goes.
                other = rng.choice(sorted(self.alive - {key}))
                self._delete(other)
                self._move(key, other)
            case "again":
                self._delete(key)
                self._create(key)
            case "delete":
                self._delete(key)
            case _:
                self.made.append(("u", key))

    def _chain(self, key: int, length: int) -> None:
        """One key after the other; what was left behind may be taken by a new row, or another one."""
        for _ in range(length):
            free = sorted(set(range(self.keys)) - self.alive)
            if not free:
                return
            left, key = key, self._move(key, self.rng.choice(free))
            kind, others = self.rng.random(), sorted(self.alive - {key})
            if kind < 0.12:
                self._create(left)
            elif kind < 0.24 and others:
                self._move(self.rng.choice(others), left)
            elif kind < 0.45:
                self.made.append(("u", key))

    def _swap(self, one: int, other: int, by: int) -> None:
        self._move(one, by)
        self._move(other, one)
        self._move(by, other)

    def _create(self, key: int) -> None:
        self.alive.add(key)
        self.made.append(("c", large(self.rng, key)))

    def _delete(self, key: int) -> None:
        self.alive.remove(key)
        self.made.append(("d", key))

    def _move(self, old: int, new: int) -> int:
        self.alive.remove(old)
        self.alive.add(new)
        self.made.append(("k", old, new))
        return new
