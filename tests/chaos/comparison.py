"""What a table should hold, and what was found -> a difference that names keys, never values; or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from tests.chaos.tables import Key, Table, Values

SHOWN = 20
Row = Mapping[str, Any]


@frozen
class Difference:
    """Where a replica is not its source: keys that are missing, too many, there more than once, or have other values.

    Of changed keys the columns are named too.
    """

    where: str
    missing: tuple[Key, ...] = ()
    extra: tuple[Key, ...] = ()
    repeated: tuple[Key, ...] = ()
    changed: tuple[tuple[Key, tuple[str, ...]], ...] = ()

    @property
    def count(self) -> int:
        """How many keys differ."""
        return len(self.missing) + len(self.extra) + len(self.repeated) + len(self.changed)

    def __str__(self) -> str:
        parts = [
            f"{len(found)} {name}: {', '.join(map(_text, found[:SHOWN]))}{' ...' if len(found) > SHOWN else ''}"
            for name, found in (("missing", self.missing), ("too many", self.extra), ("repeated", self.repeated))
            if found
        ]
        parts += [f"{_text(key)} differs in {', '.join(columns)}" for key, columns in self.changed[:SHOWN]]
        return f"{self.where}: {'; '.join(parts)}"


def compare_rows(where: str, table: Table, expected: Iterable[Row], found: Iterable[Row]) -> Difference | None:
    """Compare rows by key; None where they are the same."""
    wanted = {table.key_of(row): table.values_of(row) for row in expected}
    found = list(found)
    counts = Counter(map(table.key_of, found))
    held = {table.key_of(row): table.values_of(row) for row in found}
    difference = Difference(
        where,
        tuple(sorted(wanted.keys() - held.keys())),
        tuple(sorted(held.keys() - wanted.keys())),
        tuple(sorted(key for key, count in counts.items() if count > 1)),
        tuple(
            (key, _columns(table, values, held[key]))
            for key, values in sorted(wanted.items())
            if key in held and held[key] != values
        ),
    )
    return difference if difference.count else None


def compare_marked(
    where: str, table: Table, sent: Iterable[Key], live: Iterable[Row], marked: Iterable[Row]
) -> Difference | None:
    """Compare the keys that ever had a row with those that rows stand for, living or marked deleted, each once."""
    counts = Counter(table.key_of(row) for row in (*live, *marked))
    wanted = set(sent)
    difference = Difference(
        f"{where}, with what is deleted",
        tuple(sorted(wanted - counts.keys())),
        tuple(sorted(counts.keys() - wanted)),
        tuple(sorted(key for key, count in counts.items() if count > 1)),
    )
    return difference if difference.count else None


def compare_events(where: str, sent: Counter[Key], found: Counter[Key]) -> Difference | None:
    """Compare events, each by what tells it from all others: every one that was sent is there, as often as sent."""
    missing, extra = sent - found, found - sent
    difference = Difference(where, tuple(sorted(missing)), tuple(sorted(extra)))
    return difference if difference.count else None


def _columns(table: Table, expected: Values, found: Values) -> tuple[str, ...]:
    return tuple(name for name, one, other in zip(table.kinds, expected, found, strict=True) if one != other)


def _text(key: Key) -> str:
    return "/".join(key)
