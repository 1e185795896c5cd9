"""Equality delete files + the data files that they apply to -> what is to be joined with what. Pure.

Iceberg's planning tells which deletes apply to a data file: those with a greater sequence number, of its own partition
or of none. Of the keys of one set of columns only the newest delete counts, and of a data file only the oldest delete
that applies to it: a row is gone where the one is not older than the other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from connector.iceberg.catalog.file_description import FileDescription

SPLIT_REASON = "they apply to a data file that the table lists more than once, and not to every listing alike"
Scope = tuple[int, str]
"""A partition: the id of its spec and its values as Iceberg's JSON has them."""

UNCONVERTIBLE_TYPES = ("float", "double", "fixed", "struct", "list", "map", "variant")
"""Iceberg's types by which deletes by key do not hit all rows in every reader, or which Spark does not join."""


@attrs.frozen
class EqualityDeleteFile:
    """A live equality delete file.

    `scope` is None for a global one. `java` is what removes it: Iceberg's own of it, which knows its manifest, so that
    no other is opened. `bounds` has lowest and highest value of its columns in Iceberg's binary form by field id, for
    columns without nulls.
    """

    path: str
    sequence_number: int
    equality_ids: tuple[int, ...]
    records: int
    size_bytes: int
    scope: Scope | None
    description: FileDescription | None = attrs.field(repr=False, default=None)
    bounds: Mapping[int, tuple[bytes, bytes]] = attrs.field(factory=dict, repr=False)
    data_format: str = "parquet"
    java: Any = attrs.field(repr=False, eq=False, default=None)


@attrs.frozen
class AffectedDataFile:
    """A data file and the equality delete files, by path, that apply to it."""

    path: str
    scope: Scope
    deletes: frozenset[str]


@attrs.frozen
class JoinGroup:
    """Deletes by the same columns, either all global or all of a partition, and the data files they apply to.

    `oldest` is aligned with `data_files`: the least sequence number among the deletes that apply to each.
    `scopes` numbers the partitions; None where the deletes are global.
    """

    equality_ids: tuple[int, ...]
    deletes: tuple[EqualityDeleteFile, ...]
    data_files: tuple[AffectedDataFile, ...]
    oldest: tuple[int, ...]
    scopes: Mapping[Scope, int] | None = None

    @property
    def records(self) -> int:
        """How many keys the delete files have, repeated ones counted each time."""
        return sum(file.records for file in self.deletes)

    def only(self, paths: Collection[str]) -> JoinGroup:
        """Return the same for some of the data files."""
        kept = [place for place, file in enumerate(self.data_files) if file.path in paths]
        return attrs.evolve(
            self,
            data_files=tuple(self.data_files[place] for place in kept),
            oldest=tuple(self.oldest[place] for place in kept),
        )


def group_deletes(
    deletes: Iterable[EqualityDeleteFile], data_files: Sequence[AffectedDataFile]
) -> tuple[JoinGroup, ...]:
    """Return what is to be joined; delete files that apply to no data file are in none of the groups."""
    kinds: dict[tuple[tuple[int, ...], bool], list[EqualityDeleteFile]] = {}
    for file in deletes:
        kinds.setdefault((file.equality_ids, file.scope is None), []).append(file)
    groups = (_build_group(ids, found, data_files) for (ids, _), found in sorted(kinds.items(), key=_first))
    return tuple(group for group in groups if group.data_files)


def _first(pair: tuple[tuple[tuple[int, ...], bool], object]) -> tuple[tuple[int, ...], bool]:
    return pair[0]


def _build_group(
    ids: tuple[int, ...], deletes: Sequence[EqualityDeleteFile], data_files: Sequence[AffectedDataFile]
) -> JoinGroup:
    by_path = {file.path: file for file in deletes}
    touched = [(file, file.deletes & by_path.keys()) for file in data_files]
    touched = [(file, applying) for file, applying in touched if applying]
    used = frozenset[str]().union(*(applying for _, applying in touched))
    scoped = any(by_path[path].scope is not None for path in used)
    return JoinGroup(
        ids,
        tuple(file for file in deletes if file.path in used),
        tuple(file for file, _ in touched),
        tuple(min(by_path[path].sequence_number for path in applying) for _, applying in touched),
        {scope: place for place, scope in enumerate(sorted({file.scope for file, _ in touched}))} if scoped else None,
    )


def find_split_deletes(data_files: Iterable[AffectedDataFile]) -> frozenset[str]:
    """Return the deletes of data files that a table lists more than once, where these do not apply to every listing.

    Positions name a file by its path: new ones would hit the listings that the deletes do not apply to.
    """
    listings: dict[str, list[frozenset[str]]] = {}
    for file in data_files:
        listings.setdefault(file.path, []).append(file.deletes)
    return frozenset[str]().union(*(name for found in listings.values() if len(set(found)) > 1 for name in found))


def find_unconvertible(equality_ids: Iterable[int], types: Mapping[int, str]) -> str | None:
    """Say why deletes by these columns stay as they are; None if they can be converted.

    Args:
        equality_ids: the columns' field ids.
        types: the type of each top-level column of any of the table's schemas, by field id: `struct` and the like for
            nested ones.
    """
    for field_id in equality_ids:
        kind = types.get(field_id)
        if kind is None:
            return f"their key has field {field_id}, which is within a struct or in no schema of the table"
        if kind.startswith(UNCONVERTIBLE_TYPES):
            return f"their key has a column of type {kind}, by which readers do not agree what a delete hits"
    return None
