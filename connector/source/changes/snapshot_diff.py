"""One snapshot of a table -> a DataFrame of its row changes against its parent (docs/changes.md).

Columns: `op` (r, c, u, d), `before` and `after` (structs of the snapshot's columns, or null), `row_id` (null unless
rows are keyed by it). Types that Spark lacks are carried as `catalog.snapshot_schema` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema, check_format_version
from connector.iceberg.read.column_bounds import read_changed_bounds
from connector.iceberg.read.file_changes import FileChanges, read_file_changes
from connector.iceberg.read.frame_columns import ROW_ID_COLUMN, SEQUENCE_COLUMN, column_name, quote
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.read.table_reader import TableReader
from connector.iceberg.types.schemas.schema_json import find_path
from connector.source.changes import deleted_rows, row_lineage
from connector.source.changes.file_pruning import files_without_partner
from connector.source.changes.pairing import IS_ONLY_EVENT, pair_key_changes, pair_rows, rows_to_changes
from connector.source.changes.rewrites import file_diff
from connector.source.changes.rewrites.row_digests import HIGH, LOW, remove_carryovers, with_digest
from connector.source.changes.row_key import KeyKind, RowIdentity, RowKey


def read_changes(reader: TableReader, snapshot_id: int, keys: RowKey) -> DataFrame:
    """Return the changes of one snapshot; each row of a key comes in one partition, deletes of a key first.

    `reader` is of the snapshot's schema.

    A `u` whose key differs before and after is a change of key, and the only event of both.

    Rows are staged until `read.table_reader.release_reads`. Where files were rewritten, jobs over narrow columns run at
    once, to find the rows worth reading in full; else nothing runs before the frame is used.

    Raises:
        GapError: the snapshot or its parent has expired.
        FatalError: a v1 table, a column that cannot be read, metadata that cannot be read.
        RetriableError: the catalog or the store is away.
    """
    check_format_version(reader.table)
    files = read_file_changes(reader.spark, reader.table, snapshot_id)
    keys = _forgo_unreadable_ids(keys, files)
    lineage = keys.kind == KeyKind.ROW_ID or keys.same == RowIdentity.ROW_ID
    return SnapshotDiff(
        reader, files, keys, snapshot_id, deleted_rows.find_restored_rows(reader, files.relieved, lineage=lineage)
    ).frame()


def _forgo_unreadable_ids(keys: RowKey, files: FileChanges) -> RowKey:
    """Return the key without row ids where files have none to read, as those from before a table left ORC.

    Rows have keys of their own then: only that a row changed its key is not known, and it is deleted and created.
    """
    older = [task for pair in files.touched for task in (pair.deleted, pair.before)]
    older += [task for pair in files.relieved for task in (pair.before, pair.now)]
    if keys.same != RowIdentity.ROW_ID or all(task.row_ids_readable for task in (*files.removed, *files.added, *older)):
        return keys
    return attrs.evolve(keys, same=RowIdentity.NOTHING)


@attrs.frozen(eq=False)
class SnapshotDiff:
    """The comparison of one snapshot with its parent.

    `restored` are rows of older files that live again, `moving` says that rows may have changed their keys.
    """

    reader: TableReader
    files: FileChanges
    keys: RowKey
    snapshot_id: int
    restored: DataFrame | None = None
    moving: bool = False

    def frame(self) -> DataFrame:
        """Return the changes, by the cheapest way that the files allow."""
        if self.keys.same == RowIdentity.NOTHING or not (self._has_removed and self._has_added):
            return self._compare().drop(IS_ONLY_EVENT)
        changes = pair_key_changes(attrs.evolve(self, moving=True)._compare(), self._identity_columns())  # noqa: SLF001 - another value of this class
        return changes if self._by_row_id else changes.withColumn("row_id", F.lit(None).cast("long"))

    def _compare(self) -> DataFrame:
        """Return the changes paired by key."""
        row = row_struct(self.reader.schema)
        row_id = F.col(ROW_ID_COLUMN) if self._with_row_id else F.lit(None).cast("long")
        if not self._has_removed:
            return rows_to_changes(self._added_rows(), "c", row, row_id)
        if not self._has_added:
            return rows_to_changes(self._removed_rows(), "d", row, row_id)
        apart, rest = self._split_files()
        parts = [attrs.evolve(self, files=files)._compare() for files in apart]  # noqa: SLF001 - another value of this class
        if rest is None:
            return _union_all(parts)
        gone, new = rest._read_both_sides()  # noqa: SLF001
        return _union_all([*parts, pair_rows(gone, new, self._key(), row, row_id)])

    def _split_files(self) -> tuple[list[FileChanges], SnapshotDiff | None]:
        """Split off files that only delete and files that only create; None where nothing else is left."""
        files, names = self.files, [n for n in self.keys.columns or self.reader.schema.names if not self._by_row_id]
        if files.touched or self.restored is not None or not (files.removed and files.added and names):
            return [], self
        spans = read_changed_bounds(self.reader.table, self.snapshot_id, self.reader.schema.iceberg, names)
        old, new = ([spans.get(task.path, {}) for task in side] for side in (files.removed, files.added))
        gone, come = files_without_partner(old, new, names), files_without_partner(new, old, names)
        split = [
            attrs.evolve(files, removed=_filter_tasks(files.removed, gone), added=()),
            attrs.evolve(files, removed=(), added=_filter_tasks(files.added, come)),
        ]
        rest = attrs.evolve(
            files,
            removed=_filter_tasks(files.removed, [not flag for flag in gone]),
            added=_filter_tasks(files.added, [not flag for flag in come]),
        )
        some = [part for part in split if part.removed or part.added]
        if not (rest.removed and rest.added):
            return [*some, *([rest] if rest.removed or rest.added else [])], None
        return some, attrs.evolve(self, files=rest)

    @property
    def _by_row_id(self) -> bool:
        return self.keys.kind == KeyKind.ROW_ID

    @property
    def _with_row_id(self) -> bool:
        return self._by_row_id or (self.moving and self.keys.same == RowIdentity.ROW_ID)

    def _identity_columns(self) -> list[Column]:
        """The columns in which a delete and a create agree that are one row."""
        if self.keys.same == RowIdentity.ROW_ID:
            return [F.col("row_id")]
        image = F.coalesce("before", "after")
        return [_image_field(self.reader.schema, image, name) for name in self.keys.identifiers]

    @property
    def _has_removed(self) -> bool:
        """Whether rows of the parent may be gone."""
        return bool(self.files.removed or self.files.touched)

    @property
    def _has_added(self) -> bool:
        """Whether there may be rows that the parent did not have."""
        return bool(self.files.added) or self.restored is not None

    def _live(self, tasks: Sequence[FileScanTask]) -> DataFrame:
        return self.reader.read_live_rows(tasks, lineage=self._with_row_id).drop(SEQUENCE_COLUMN)

    def _added_rows(self) -> DataFrame:
        added = self._live(self.files.added)
        return added if self.restored is None else added.unionByName(self.restored)

    def _removed_rows(self) -> DataFrame:
        parts = []
        if self.files.removed:
            parts.append(self._live(self.files.removed))
        if self.files.touched:
            parts.append(self._deleted_rows(lineage=self._with_row_id))
        return _union_all(parts)

    def _deleted_rows(self, *, lineage: bool) -> DataFrame:
        return deleted_rows.find_deleted_rows(self.reader, self.files.touched, lineage=lineage)

    def _read_both_sides(self) -> tuple[DataFrame, DataFrame]:
        """Return what went and what came, with digests; rows of rewritten files that stayed are left out."""
        if not (self.files.removed and self.files.added):
            return self._with_digests(self._removed_rows()), self._with_digests(self._added_rows())
        if row_lineage.has_lineage(self.files):
            taken = self._deleted_rows(lineage=True) if self.files.touched else None
            gone, new = (
                self._with_digests(rows) for rows in row_lineage.find_changed_rows(self.reader, self.files, taken)
            )
        else:
            gone, new = self._compare_rewritten()
            if self.files.touched:
                gone = gone.unionByName(self._with_digests(self._deleted_rows(lineage=self._with_row_id)))
        return gone, new if self.restored is None else new.unionByName(self._with_digests(self.restored))

    def _compare_rewritten(self) -> tuple[DataFrame, DataFrame]:
        walked = None if self._by_row_id else file_diff.find_unpaired_rows(self.reader, self.files, self.keys)
        if walked is not None:
            return self._with_digests(walked[0]), self._with_digests(walked[1])
        gone, new = self._live(self.files.removed), self._live(self.files.added)
        return remove_carryovers(self._with_digests(gone), self._with_digests(new))

    def _with_digests(self, rows: DataFrame) -> DataFrame:
        return with_digest(rows, self.reader.columns)

    def _key(self) -> list[Column]:
        if self._by_row_id:
            # Rows from before an upgrade to v3 have no row id: only an equal row can be their partner.
            missing = F.col(ROW_ID_COLUMN).isNull()
            return [F.col(ROW_ID_COLUMN), F.when(missing, F.col(HIGH)), F.when(missing, F.col(LOW))]
        return [key_column(self.reader.schema, name) for name in self.keys.columns]


def row_struct(schema: SnapshotSchema) -> Column:
    """Return the struct of a row under the table's own column names."""
    # As text it is one call of Java's, and not two for each column.
    return F.expr(f"struct({', '.join(f'{column_name(i)} AS {quote(name)}' for i, name in enumerate(schema.names))})")


def key_column(schema: SnapshotSchema, name: str) -> Column:
    """Return a key column of a reader's frame: a top-level one, or a field of nested structs."""
    top, *inner = _path(schema, name)
    return reduce(Column.getField, inner, F.col(column_name(schema.names.index(top))))


def _image_field(schema: SnapshotSchema, image: Column, name: str) -> Column:
    """The same in a struct of the row."""
    return reduce(Column.getField, _path(schema, name), image)


def _path(schema: SnapshotSchema, name: str) -> tuple[str, ...]:
    found = find_path(schema.document, name)
    if found is None:
        raise KeyError(name)
    return found


def _filter_tasks(tasks: Sequence[FileScanTask], flags: Sequence[bool]) -> tuple[FileScanTask, ...]:
    return tuple(task for task, flag in zip(tasks, flags, strict=True) if flag)


def _union_all(parts: Sequence[DataFrame]) -> DataFrame:
    first, *others = parts
    for other in others:
        first = first.unionByName(other)
    return first
