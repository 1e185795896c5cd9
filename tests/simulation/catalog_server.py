"""Commits -> versions of tables' metadata, and the files that these name: a catalog and a store in memory.

A commit demands that its table is where it was found, as Iceberg demands of every catalog: by its metadata (`jdbc`),
or by its branch (`rest`). Whatever else is done to tables from outside is here as well.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import count
from typing import Any, Literal

import attrs
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.write.deletion_vectors import decode_vector
from tests.simulation.interruptions import commit_refused

CatalogKind = Literal["jdbc", "rest"]
Rows = list[dict[str, Any]]
Keys = tuple[tuple[str, ...], frozenset[tuple[Any, ...]]]
"""The names of the key columns of a file of equality deletes, and the keys."""


@attrs.frozen
class LiveFile:
    """A file of a snapshot; `number` is its data sequence number, 0 until it is committed.

    Of position deletes `referenced` is the data file that they are about; a vector is a piece of its file.
    """

    path: str
    content: str
    description: Any = attrs.field(default=None, eq=False)
    number: int = 0
    referenced: str | None = None
    offset: int | None = None
    size_bytes: int | None = None

    @property
    def place(self) -> tuple[str, int | None]:
        """Where it is: vectors share files."""
        return self.path, self.offset

    @property
    def is_data(self) -> bool:
        return self.content == "data"

    def referencedDataFile(self) -> str | None:  # noqa: N802 - Java's name
        return self.referenced

    @staticmethod
    def of(description: FileDescription, number: int) -> LiveFile:
        """As a commit brings it."""
        told = orjson.loads(description.json) if description.json else {}
        piece = told.get("content-offset"), told.get("content-size-in-bytes")
        named = description.path, description.content, description, number, description.referenced_data_file
        return LiveFile(*named, *piece)


LiveRow = tuple[LiveFile, int, dict[str, Any]]
"""A row with its data file and its position there."""


@attrs.frozen(slots=False, eq=False)
class SnapshotVersion:
    """A snapshot; `added` tells whether it brought rows of anybody."""

    id: int
    parent: int | None
    number: int
    operation: str
    summary: Mapping[str, str]
    files: tuple[LiveFile, ...]
    manifest: str
    added: bool
    made_ms: int

    @cached_property
    def pyiceberg(self) -> Snapshot:
        """As PyIceberg reads it."""
        return Snapshot(
            snapshot_id=self.id,
            parent_snapshot_id=self.parent,
            sequence_number=self.number,
            timestamp_ms=self.made_ms,
            manifest_list=self.manifest,
            summary=Summary(Operation(self.operation), **self.summary),
            schema_id=0,
        )


@attrs.frozen(slots=False, eq=False)
class Metadata:
    """A version of a table; `head` is the newest snapshot of its only branch.

    `texts` has the schemas of all versions as JSON, by their place in memory: mostly it is one.
    """

    uuid: str
    name: str
    schema: Schema
    properties: Mapping[str, str]
    version: int = 0
    head: int | None = None
    last_number: int = 0
    snapshots: Mapping[int, SnapshotVersion] = attrs.field(factory=dict)
    texts: dict[int, tuple[Schema, str]] = attrs.field(factory=dict)

    @property
    def schema_json(self) -> str:
        if id(self.schema) not in self.texts:
            self.texts[id(self.schema)] = self.schema, self.schema.model_dump_json()
        return self.texts[id(self.schema)][1]

    @property
    def format_version(self) -> int:
        return int(self.properties.get("format-version", 2))

    @property
    def newest(self) -> SnapshotVersion | None:
        return None if self.head is None else self.snapshots[self.head]

    def ancestors(self) -> Iterator[SnapshotVersion]:
        """The newest snapshot and those before it that are left, newest first."""
        at = self.newest
        while at is not None:
            yield at
            at = self.snapshots.get(at.parent) if at.parent is not None else None


@attrs.define(eq=False)
class CatalogServer:
    """All tables by full name, and all files by path; `broken` names files that went although somebody needs them.
    `ever` has all snapshots that there were, `expired` those that another engine has expired.

    `landed` is called with each snapshot of a table that is in, behind what was there.
    """

    kind: CatalogKind = "jdbc"
    tables: dict[str, Metadata] = attrs.field(factory=dict)
    files: dict[str, Any] = attrs.field(factory=dict)
    broken: list[str] = attrs.field(factory=list)
    store: int = 0
    landed: Callable[[str, SnapshotVersion, Any], None] = lambda *_: None
    now_ms: int = 1_700_000_000_000
    ever: dict[int, SnapshotVersion] = attrs.field(factory=dict)
    expired: set[int] = attrs.field(factory=set)
    _read: dict[Any, Any] = attrs.field(factory=dict)
    _live: dict[int, list[LiveRow]] = attrs.field(factory=dict)
    _ids: Iterator[int] = attrs.field(factory=lambda: count(1))

    def next_id(self) -> int:
        return next(self._ids)

    def create(self, name: str, schema: Schema, properties: Mapping[str, str]) -> Metadata:
        """Make a table; ValueError if it is there."""
        if name in self.tables:
            raise ValueError(name)
        self.tables[name] = Metadata(f"uuid-{self.next_id()}", name, schema, dict(properties))
        return self.tables[name]

    def swap(self, base: Metadata, new: Metadata, told: Any = None) -> None:
        """Put a version in the place of the one that it was made from; raises Java's refusal if that is not there."""
        now = self.tables.get(base.name)
        if now is None or now.uuid != base.uuid or not self._is_base(base, now):
            raise commit_refused()
        snapshots, properties = {**now.snapshots}, new.properties
        fresh = [one for one in new.snapshots.values() if one.id not in base.snapshots]
        for gone in base.snapshots.keys() - new.snapshots.keys():
            snapshots.pop(gone, None)
        snapshots |= {one.id: one for one in fresh}
        self.tables[base.name] = attrs.evolve(new, version=now.version + 1, snapshots=snapshots, properties=properties)
        self.ever |= {one.id: one for one in fresh}
        for one in fresh:
            self.landed(base.name, one, told)

    def _is_base(self, base: Metadata, now: Metadata) -> bool:
        return base.version == now.version if self.kind == "jdbc" else base.head == now.head

    def delete_file(self, path: str) -> None:
        """Delete a file; one that a snapshot names is missed from then on."""
        self.files.pop(path, None)
        for table in self.tables.values():
            for one in table.snapshots.values():
                if one.manifest == path or any(file.path == path for file in one.files):
                    self.broken.append(f"{path} of table {table.name}, snapshot {one.id}")

    def rows(self, name: str, snapshot: int | None = None) -> Rows:
        """The live rows of a table, as any reader sees them."""
        table = self.tables[name]
        version = table.newest if snapshot is None else table.snapshots[snapshot]
        return [] if version is None else [row for _, _, row in self.live_rows(version)]

    def live_rows(self, version: SnapshotVersion) -> Iterable[LiveRow]:
        """The rows of a snapshot with their data file and position, without those that deletes take out.

        They are found once: files never change. While one is gone, whoever comes to it is to hear of it.
        """
        if any(file.path not in self.files for file in version.files):
            return self._find_live_rows(version)
        if version.id not in self._live:
            self._live[version.id] = list(self._find_live_rows(version))
        return self._live[version.id]

    def _find_live_rows(self, version: SnapshotVersion) -> Iterator[LiveRow]:
        keys = [(file.number, self._keys(file)) for file in version.files if file.content == "equality-deletes"]
        positions = [file for file in version.files if file.content == "position-deletes"]
        for file in version.files:
            if file.content != "data":
                continue
            gone = self.deleted_positions(file.path, positions)
            later = [those for at, those in keys if at > file.number]
            for place, row in enumerate(self.read(file.path)):
                if place not in gone and not any(_is_hit(row, those) for those in later):
                    yield file, place, row

    def deleted_positions(self, path: str, deletes: Iterable[LiveFile]) -> set[int]:
        """What position deletes take out of a data file."""
        return {at for one in deletes if one.referenced == path for at in self._positions(one)}

    def read(self, path: str) -> Rows:
        """The rows of one file."""
        found = self.files[path]
        if isinstance(found, list):
            return found
        if path not in self._read:
            table = found if isinstance(found, pa.Table) else pq.read_table(io.BytesIO(found), use_threads=False)
            self._read[path] = table.to_pylist()
        return self._read[path]  # type: ignore[no-any-return]

    def _keys(self, file: LiveFile) -> Keys:
        rows, question = self.read(file.path), ("keys", file.path)
        if question not in self._read:
            names = tuple(rows[0]) if rows else ()
            self._read[question] = names, frozenset(tuple(row[name] for name in names) for row in rows)
        return self._read[question]  # type: ignore[no-any-return]

    def _positions(self, file: LiveFile) -> Iterable[int]:
        content, place = self.files[file.path], (file.path, file.offset)
        if place not in self._read and file.offset is not None and file.size_bytes is not None:
            self._read[place] = list(decode_vector(content[file.offset : file.offset + file.size_bytes]))
        elif place not in self._read:
            self._read[place] = pq.read_table(io.BytesIO(content), use_threads=False)["pos"].to_pylist()
        return self._read[place]  # type: ignore[no-any-return]

    # --- what others do -----------------------------------------------------------------------------------------

    def commit_foreign(self, name: str, operation: str, files: Iterable[LiveFile], *, added: bool) -> None:
        """Another engine's commit: these are the files then; new ones have the number 0."""
        base = self.tables[name]
        number, made = base.last_number + 1, self.next_id()
        named = tuple(attrs.evolve(file, number=file.number or number) for file in files)
        manifest = f"{name}/metadata/foreign-{made}"
        self.files[manifest] = b""
        version = SnapshotVersion(made, base.head, number, operation, {}, named, manifest, added, self.now_ms)
        snapshots = {**base.snapshots, made: version}
        self.swap(base, attrs.evolve(base, head=made, last_number=number, snapshots=snapshots))

    def compact(self, name: str) -> None:
        """Another engine's rewrite of all data files as one, which leaves no delete file that still has to apply."""
        base = self.tables[name].newest
        if base is None:
            return
        # The rows are as of the snapshot that was read, and deletes of later ones apply to them.
        live = self.rows(name)
        self.commit_foreign(name, "replace", [self.write(name, live, base.number)] if live else [], added=False)

    def append(self, name: str, rows: Rows) -> None:
        """Another writer's rows."""
        base = self.tables[name].newest
        before = base.files if base is not None else ()
        self.commit_foreign(name, "append", [*before, self.write(name, rows, 0)], added=True)

    def write(self, name: str, rows: Rows, number: int, folder: str | None = None) -> LiveFile:
        """Write rows to a file."""
        path = f"{folder or f'{name}/data'}/other-{self.next_id()}"
        self.files[path] = rows
        return LiveFile(path, "data", Bounds.of_ids([row["id"] for row in rows]), number)

    def expire(self, name: str, keep: int = 1) -> None:
        """Drop all snapshots but the newest few of the branch, and files that no other names."""
        base = self.tables[name]
        kept = {one.id: one for one, _ in zip(base.ancestors(), range(keep), strict=False)}
        self.swap(base, attrs.evolve(base, snapshots=kept))
        self.expired |= base.snapshots.keys() - kept.keys()
        needed = {file.path for one in kept.values() for file in one.files} | {one.manifest for one in kept.values()}
        for one in base.snapshots.values():
            for path in {one.manifest, *(file.path for file in one.files)} - needed:
                self.files.pop(path, None)

    def roll_back(self, name: str, steps: int) -> bool:
        """Put the branch back by so many snapshots, if there are as many left."""
        base = self.tables[name]
        older = list(base.ancestors())[steps:]
        if not older:
            return False
        self.swap(base, attrs.evolve(base, head=older[0].id))
        return True


def _is_hit(row: Mapping[str, Any], keys: Keys) -> bool:
    names, values = keys
    return tuple(row[name] for name in names) in values


@attrs.frozen
class Bounds:
    """The bounds of the key column of a file, in Iceberg's binary form; none where nobody knows them."""

    lower_bounds: Mapping[int, bytes] = attrs.field(factory=dict)
    upper_bounds: Mapping[int, bytes] = attrs.field(factory=dict)

    @staticmethod
    def of_ids(ids: list[int], field: int = 1) -> Bounds:
        """Of a column `id` of longs."""
        if not ids:
            return Bounds()
        low, high = (value.to_bytes(8, "little", signed=True) for value in (min(ids), max(ids)))
        return Bounds({field: low}, {field: high})
