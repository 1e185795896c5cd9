"""A table's columns -> a plain description: what the writing side has to know of a type, and no more.

Names of plain types are Iceberg's (spec, "Primitive types"). Whoever reads tables makes these descriptions.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import frozen


@frozen
class Primitive:
    """A primitive type by Iceberg's name, without parameters: `decimal` has precision and scale beside it."""

    name: str
    precision: int = 0
    scale: int = 0


@frozen
class RowField:
    """A named field of a record."""

    name: str
    kind: RowType
    optional: bool = True


@frozen
class RowStruct:
    """Fields by name, in the table's order."""

    members: tuple[RowField, ...]

    def only(self, names: frozenset[str]) -> RowStruct:
        """The record with these fields only."""
        return RowStruct(tuple(member for member in self.members if member.name in names))


@frozen
class RowList:
    """A list."""

    item: RowType
    optional: bool = True


@frozen
class RowMap:
    """A map; keys are never null."""

    key: RowType
    value: RowType
    optional: bool = True


RowType: TypeAlias = Primitive | RowStruct | RowList | RowMap
