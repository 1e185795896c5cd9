"""A table that others rewrite -> the same, with every equality delete that its rows still need. On the driver.

Looks at what came since the snapshot that was looked at last, or since the connector's own newest commit: also after a
restart. Nothing is read where no other engine has rewritten files (docs/decisions/0034).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import structlog
from pyiceberg.table.snapshots import Snapshot

from connector.errors import GapError, RetriableError
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import CONNECTOR_NAME
from connector.iceberg.guard.delete_reach import (
    ContentFile,
    FieldTypes,
    ForeignRewrite,
    LostDelete,
    find_escaped,
    find_lost_deletes,
    find_outrun_deletes,
    find_undone_conversions,
)
from connector.iceberg.guard.delete_restoration import (
    REMEDY,
    JavaFile,
    Renumbering,
    Restoration,
    check_files_exist,
    find_delete_files,
    is_vector,
    restore_deletes,
)
from connector.iceberg.guard.foreign_rewrites import (
    ManifestReader,
    UncheckedHistory,
    find_conversions,
    is_foreign_rewrite,
    open_manifests,
    read_history,
)
from connector.iceberg.java import iterate
from connector.iceberg.read.delete_hits import find_hit_files
from connector.iceberg.read.scan_planning import find_repeated_paths

ATTEMPTS = 5
"""How often it is looked again while other writers are faster."""


@attrs.frozen
class DeleteGuard:
    """Guards the equality deletes of one connector's tables."""

    connector: str

    def check(self, table: Table, checked: int | None, *, wrote: bool) -> None:
        """Put right what rewrites of others did since snapshot `checked`, None for the connector's newest commit.

        `wrote` tells whether the connector is known to have written to the table: where no commit of it is left that
        counts, and a table that it takes over is as it is.

        The table is up to date afterwards, and its newest snapshot is checked. Cost: nothing where that is the
        connector's own; else the metadata file, and after a rewrite the manifests that it changed.

        Raises:
            GapError: deletes are lost that cannot be had back; says what to do.
            RetriableError: other writers were faster each time, or the catalog or store is away.
            CommitUnknown: nobody could tell whether the commit is in.
        """
        for _ in range(ATTEMPTS):
            head = table.snapshot_id
            if head is None or head == checked or self._is_own(table):
                return
            history = read_history(table, checked, self.connector)
            if history.cut and not wrote:
                return
            self._warn_if_cut(table, history)
            found = None if history.first_rewrite is None else _Damage.read(table, head, history).restoration()
            if found is None:
                return
            try:
                restore_deletes(table, found, head, self.connector)
            except RetriableError as error:
                structlog.get_logger().warning("looking again for lost deletes", table=table.name, reason=str(error))
                table.refresh()
            else:
                checked = head
        raise RetriableError(f"table {table.name}: others commit faster than equality deletes can be restored")

    def _is_own(self, table: Table) -> bool:
        newest = table.java.snapshot(table.branch)
        return bool(newest.summary().get(CONNECTOR_NAME) == self.connector)

    def _warn_if_cut(self, table: Table, history: UncheckedHistory) -> None:
        if history.cut:
            structlog.get_logger().warning(
                "snapshots since this connector's last commit have expired: whether maintenance of others took "
                "equality deletes away cannot be told; keep snapshots for longer than the sink may be down",
                table=table.name,
            )


def _with_conversions(change: ForeignRewrite, snapshot: Snapshot, conversions: Conversions) -> ForeignRewrite:
    if not is_foreign_rewrite(snapshot) or not change.removed or not change.added:
        return change
    kept = [file.sequence_number for file in change.added if file.sequence_number < change.sequence_number]
    since = min([*kept, *([change.replaced_until] if len(kept) < len(change.added) else [])])
    return attrs.evolve(change, converted=conversions.find(since, change.sequence_number))


@attrs.frozen(eq=False)
class Conversions:
    """Equality deletes that this program took out, and where they were last."""

    reader: ManifestReader
    pairs: Sequence[tuple[Snapshot, Snapshot]]
    _homes: dict[str, int] = attrs.field(factory=dict)

    def find(self, since: int, until: int) -> tuple[ContentFile, ...]:
        """Return those newer than sequence number `since` that went before `until`. Cost: manifests of conversions."""
        found: list[ContentFile] = []
        for parent, child in self.pairs:
            if since < (child.sequence_number or 0) < until:
                removed = [
                    file for file in self.reader.read_changes(parent, child).lost if file.sequence_number > since
                ]
                self._homes.update((file.path, parent.snapshot_id) for file in removed)
                found += removed
        return tuple(found)

    def home_of(self, delete: ContentFile, otherwise: int) -> int:
        """Return a snapshot that has a delete file."""
        return self._homes.get(delete.path, otherwise)


@attrs.frozen(eq=False)
class _Damage:
    """What the rewrites of a history did to deletes; each with the steps that came after it."""

    table: Table
    head: int
    steps: Sequence[tuple[Snapshot, Snapshot]]
    changes: Sequence[ForeignRewrite]
    types: FieldTypes
    conversions: Conversions
    homes: set[int] = attrs.field(factory=set)

    @staticmethod
    def read(table: Table, head: int, history: UncheckedHistory) -> _Damage:
        """Read the manifests from the first rewrite on, and those of conversions since the rewrites began."""
        steps, reader = history.steps[history.first_rewrite or 0 :], open_manifests(table)
        conversions = Conversions(reader, find_conversions(table))
        changes = [_with_conversions(reader.read_changes(*step), step[1], conversions) for step in steps]
        return _Damage(table, head, steps, changes, reader.types, conversions)

    def restoration(self) -> Restoration | None:
        """Return what is to be put right, None for nothing."""
        lost: dict[str, JavaFile] = {}
        renumbered: list[Renumbering] = []
        for place, (parent, child) in enumerate(self.steps):
            if is_foreign_rewrite(child):
                lost |= self._find_lost(place, parent)
                again, groups = self._find_outrun(place, parent)
                lost |= again
                renumbered += groups
        return Restoration(list(lost.values()), renumbered, frozenset(self.homes)) if lost or renumbered else None

    def _find_lost(self, place: int, parent: Snapshot) -> dict[str, JavaFile]:
        change, later = self.changes[place], self.changes[place + 1 :]
        back = frozenset[str]().union(*(each.new_deletes for each in later))
        told = (*find_lost_deletes(change, self.types), *find_undone_conversions(change, self.types))
        lost = [one for one in told if one.delete.path not in back]
        if not lost:
            return {}
        files = self._load(change, parent, [one.delete for one in lost])
        needed = self._select_needed(change, lost, files)
        if find_escaped(needed, later, self.types):
            raise self._rewritten_since(change)
        return {one.delete.path: files[one.delete.path] for one in needed}

    def _select_needed(
        self, change: ForeignRewrite, lost: Sequence[LostDelete], files: Mapping[str, JavaFile]
    ) -> Sequence[LostDelete]:
        """Leave out deletes in whose place others came: those that no live row is left for."""
        tried: dict[str, list[JavaFile]] = {}
        for one in lost:
            for file in one.files if one.converted else ():
                tried.setdefault(file.path, []).append(files[one.delete.path])
        hit = {task.path for task in find_hit_files(self.table, change.snapshot_id, tried)} if tried else ()
        return [one for one in lost if not one.converted or any(file.path in hit for file in one.files)]

    def _find_outrun(self, place: int, parent: Snapshot) -> tuple[dict[str, JavaFile], list[Renumbering]]:
        """Return deletes that went with the rewrite and are needed again, and files that get another number."""
        change, later = self.changes[place], self.changes[place + 1 :]
        outrun = {one.file.path: one for one in find_outrun_deletes(change, self.types)}
        if not outrun:
            return {}, []
        if any(file.path in outrun for each in later for file in each.removed):
            raise self._rewritten_since(change)
        files = self._load(change, parent, [delete for one in outrun.values() for delete in one.deletes])
        tried = {path: [files[delete.path] for delete in one.deletes] for path, one in outrun.items()}
        hit = find_hit_files(self.table, self.head, tried)
        if repeated := find_repeated_paths(hit):
            raise GapError(
                f"table {self.table.name}: after snapshot {change.snapshot_id}, of another engine, equality deletes no "
                f"longer apply to rows of a file that the table lists more than once ({min(repeated)}), which cannot "
                f"be numbered anew; {REMEDY}"
            )
        needed = {delete.path for task in hit for delete in outrun[task.path].deletes}
        removed = {delete.path for delete in (*change.lost, *change.converted)}
        if not hit:
            return {}, []
        data = [task.java().file() for task in hit]
        vectors = [file for task in hit for file in iterate(task.java().deletes()) if is_vector(file)]
        kept = [files[path] for path in needed - removed]
        return {path: files[path] for path in needed & removed}, [
            Renumbering(change.replaced_until, data, [*kept, *vectors])
        ]

    def _load(self, change: ForeignRewrite, parent: Snapshot, deletes: Iterable[ContentFile]) -> dict[str, JavaFile]:
        places = {delete.path: self.conversions.home_of(delete, parent.snapshot_id) for delete in deletes}
        self.homes.update(places.values())
        files = find_delete_files(self.table, places)
        check_files_exist(self.table, list(files.values()), change.snapshot_id)
        return files

    def _rewritten_since(self, change: ForeignRewrite) -> GapError:
        return GapError(
            f"table {self.table.name}: after snapshot {change.snapshot_id}, of another engine, equality deletes no "
            f"longer apply to rows that they deleted, and those rows were rewritten since; {REMEDY}"
        )
