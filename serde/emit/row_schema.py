"""A table's columns, described plainly: what the writing side of the wire has to know of a type, and no more.

Names of plain types are Iceberg's (spec, "Primitive types"). Whoever reads tables makes these descriptions.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen


@frozen
class Plain:
    """A primitive type by Iceberg's name, without parameters: `decimal` has precision and scale beside it."""

    name: str
    precision: int = 0
    scale: int = 0


@frozen
class Member:
    """A named field of a record."""

    name: str
    kind: Kind
    optional: bool = True


@frozen
class Record:
    """Fields by name, in the table's order."""

    members: tuple[Member, ...]

    def only(self, names: frozenset[str]) -> Record:
        """The record with these fields only."""
        return Record(tuple(member for member in self.members if member.name in names))


@frozen
class Items:
    """A list."""

    item: Kind
    optional: bool = True


@frozen
class Pairs:
    """A map; keys are never null."""

    key: Kind
    value: Kind
    optional: bool = True


Kind: TypeAlias = Plain | Record | Items | Pairs
