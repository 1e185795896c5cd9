"""A table with equality deletes -> the same rows without: planned, written, committed. On the driver."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.errors import CommitRefused, ConnectorError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import VECTORS_VERSION, Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.commit.commit_attempts import Ancestors, commit_exactly_once
from connector.iceberg.commit.commit_summary import COMMIT_ID, CREATED_BY
from connector.iceberg.java import iterate, jvm, to_dict
from connector.iceberg.keys.intervals import ORDERED_TYPES, parse_interval
from connector.iceberg.keys.key_ranges import KeyRange, KeyRanges
from connector.iceberg.read.scan_planning import FileScanTask, plan_files
from connector.iceberg.read.table_reader import MAINTAINING, release_reads
from connector.maintenance.conversion.delete_manifests import read_equality_deletes, scope_of
from connector.maintenance.conversion.key_search import write_hits
from connector.maintenance.conversion.plan import (
    SPLIT_REASON,
    AffectedDataFile,
    EqualityDeleteFile,
    JoinGroup,
    find_split_deletes,
    find_unconvertible,
    group_deletes,
)
from connector.maintenance.conversion.position_files import write_position_deletes
from connector.maintenance.conversion.position_search import PositionSearch, read_top_level_fields
from connector.maintenance.conversion.shards import plan_shards
from connector.maintenance.conversion.validation import LaterSnapshot, find_conflict
from connector.maintenance.tasks import CONVERT, CONVERTED_SEQUENCE, MAINTENANCE_TASK
from connector.runtime.spark.task_errors import raise_task_errors


@attrs.frozen(eq=False)
class Conversion:
    """What a conversion of one snapshot writes: for the commit.

    `equality_deletes` leave the table, those of `unconverted` do not (with the reason); `files` are the data files of
    which `written` has positions.
    """

    base: int
    equality_deletes: tuple[EqualityDeleteFile, ...]
    files: tuple[FileScanTask, ...] = ()
    written: tuple[FileDescription, ...] = ()
    unconverted: tuple[tuple[str, int], ...] = ()


@attrs.frozen
class ConversionResult:
    """What became of a table's equality deletes; counts are of files, `rows` of keys that were deleted by them."""

    converted: int = 0
    rows: int = 0
    data_files: int = 0
    written_bytes: int = 0
    unconverted: tuple[tuple[str, int], ...] = ()
    seconds: float = 0.0


def convert_deletes(
    spark: SparkSession,
    table: Table,
    name: str,
    *,
    layout: TableLayout | None = None,
    max_bytes: int | None = None,
    index_bytes: int = 0,
    holds: Callable[[], bool] = lambda: True,
) -> ConversionResult:
    """Convert the equality deletes of a table's branch; nothing happens where there are none.

    Args:
        spark: the session with the catalog.
        table: as it was last read, and looked at by the guard of deletes; up to date afterwards.
        name: who does it, for the snapshot's summary.
        layout: how delete files are written; the table's own by default.
        max_bytes: about how many bytes of delete files at most, the oldest first; all by default.
        index_bytes: how much an executor may keep of indexes of data files' keys, for the next conversion.
        holds: tells right before a commit whether it may still be tried.

    Raises:
        CommitRefused: another writer changed the same data files; nothing is left behind, it may be done again.
        CommitUnknown, RetriableError: as `commit.commit_attempts.commit_exactly_once`.
        FatalError: the table's metadata or files cannot be read.
    """
    started = time.monotonic()
    made = write_conversion(spark, table, layout or table.layout(), max_bytes, index_bytes)
    if made is None or not made.equality_deletes:
        return ConversionResult(unconverted=() if made is None else made.unconverted)
    try:
        commit_conversion(spark, table, made, name, holds)
    except CommitRefused:
        discard_files(table, made.written)
        raise
    return ConversionResult(
        len(made.equality_deletes),
        sum(file.records for file in made.equality_deletes),
        len(made.files),
        _count_bytes(made.written),
        made.unconverted,
        time.monotonic() - started,
    )


def discard_files(table: Table, descriptions: Iterable[FileDescription]) -> None:
    """Delete files that no commit refers to; what cannot be deleted is an orphan, and harmless."""
    for path in dict.fromkeys(description.path for description in descriptions):
        try:
            table.delete_file(path)
        except ConnectorError as error:
            structlog.get_logger().warning("a file is left behind", reason=str(error))


def write_conversion(
    spark: SparkSession, table: Table, layout: TableLayout, max_bytes: int | None = None, index_bytes: int = 0
) -> Conversion | None:
    """Find and write the positions that a table's equality deletes hit, as it was last read; None without a snapshot.

    Args:
        spark: the session with the catalog.
        table: the table.
        layout: how delete files are written.
        max_bytes, index_bytes: as in `convert_deletes`.

    Raises:
        FatalError, RetriableError: the table's metadata or files cannot be read.
    """
    base = table.snapshot_id
    if base is None:
        return None
    found, kept = _split_convertible(spark, table, read_equality_deletes(spark, table, base))
    chosen, planned, split = _choose_oldest(
        found, max_bytes, lambda deletes: plan_files(spark, table, base, _filter_of(layout, deletes))
    )
    kept = (*kept, (SPLIT_REASON, split)) if split else kept
    if not chosen:
        return Conversion(base, (), unconverted=kept)
    # Listings of one file that are left have the same deletes: any of them stands for all.
    tasks = {task.path: task for task in planned}
    groups = group_deletes(chosen, [_describe_task(task) for task in tasks.values() if task.equality_ids])
    if not groups:
        return Conversion(base, chosen, unconverted=kept)
    files, written = _write_positions(spark, table, layout, tasks, groups, index_bytes)
    return Conversion(base, chosen, files, written, kept)


def _split_convertible(
    spark: SparkSession, table: Table, found: Sequence[EqualityDeleteFile]
) -> tuple[list[EqualityDeleteFile], tuple[tuple[str, int], ...]]:
    fields = read_top_level_fields(spark, table) if found else {}
    types = {n: f["type"] if isinstance(f["type"], str) else str(f["type"]["type"]) for n, f in fields.items()}
    reasons = {ids: find_unconvertible(ids, types) for ids in {file.equality_ids for file in found}}
    counts: dict[str, int] = {}
    for file in found:
        reason = reasons[file.equality_ids]
        if reason is not None:
            counts[reason] = counts.get(reason, 0) + 1
    return [file for file in found if reasons[file.equality_ids] is None], tuple(sorted(counts.items()))


def _choose_oldest(
    found: Sequence[EqualityDeleteFile],
    max_bytes: int | None,
    plan: Callable[[Sequence[EqualityDeleteFile]], Sequence[FileScanTask]],
) -> tuple[tuple[EqualityDeleteFile, ...], Sequence[FileScanTask], int]:
    """Return the oldest deletes that can be converted, the data files that they may hit, and how many stay as they are.

    Those that apply to some listings of a data file only stay, and hold up none that are newer.
    """
    split, rest = 0, list(found)
    while chosen := list(_take_oldest(rest, max_bytes)):
        planned = plan(chosen)
        parted = find_split_deletes(map(_describe_task, planned))
        whole = tuple(file for file in chosen if file.path not in parted)
        split += len(chosen) - len(whole)
        if whole:
            return whole, planned, split
        rest = rest[len(chosen) :]
    return (), (), split


def _take_oldest(files: Sequence[EqualityDeleteFile], max_bytes: int | None) -> Iterable[EqualityDeleteFile]:
    """Yield files until there are so many bytes, those of the last one included."""
    taken = 0
    for file in files:
        if max_bytes is not None and taken >= max_bytes:
            return
        taken += file.size_bytes
        yield file


def _describe_task(task: FileScanTask) -> AffectedDataFile:
    scope = scope_of(task.place.spec_id, list(task.place.partition))
    return AffectedDataFile(task.path, scope, task.deletes)


def _filter_of(layout: TableLayout, deletes: Sequence[EqualityDeleteFile]) -> str | None:
    """Return Iceberg's filter (JSON) of the rows that may be hit; None where that is not known for each delete file."""
    ranges = [_range_of(layout, file) for file in deletes]
    known = [each for each in ranges if each]
    columns = {frozenset(each) for each in known}
    if len(known) < len(ranges) or len(columns) != 1:
        return None
    return KeyRanges.join(KeyRanges(1, 0, (each,)) for each in known).filter(layout.schema)


def _range_of(layout: TableLayout, file: EqualityDeleteFile) -> KeyRange:
    found = {}
    for number in file.equality_ids:
        field = next((each for each in layout.schema.fields if each.field_id == number), None)
        if field is not None and isinstance(field.field_type, ORDERED_TYPES) and number in file.bounds:
            span = parse_interval(field.field_type, *file.bounds[number])
            if span is not None:
                found[field.name] = span
    return found


def _write_positions(
    spark: SparkSession,
    table: Table,
    layout: TableLayout,
    tasks: dict[str, FileScanTask],
    groups: Sequence[JoinGroup],
    index_bytes: int,
) -> tuple[tuple[FileScanTask, ...], tuple[FileDescription, ...]]:
    """Find and write the positions; give the data files that have some, and what was written."""
    vectors, most = table.format_version >= VECTORS_VERSION, spark.sparkContext.defaultParallelism
    paths = {file.path for group in groups for file in group.data_files}
    shards, written = plan_shards(groups, layout, tasks, most), list[FileDescription]()
    if shards:
        with raise_task_errors():
            written, unread = write_hits(spark, layout, shards, index_bytes, as_vectors=vectors)
        paths -= {file.path for shard in shards for file in shard.files} - unread
    if paths:
        rest = [group.only(paths) for group in groups if any(file.path in paths for file in group.data_files)]
        try:
            written += _join(spark, table, layout, {path: tasks[path] for path in sorted(paths)}, rest)
        except ConnectorError:
            discard_files(table, written)
            raise
    referenced = {description.referenced_data_file for description in written}
    return tuple(tasks[path] for path in sorted(path for path in referenced if path is not None)), tuple(written)


def _join(
    spark: SparkSession,
    table: Table,
    layout: TableLayout,
    tasks: dict[str, FileScanTask],
    groups: Sequence[JoinGroup],
) -> list[FileDescription]:
    """Find the positions by joins, and write them."""
    vectors = table.format_version >= VECTORS_VERSION
    writers = min(len(tasks), spark.sparkContext.defaultParallelism)
    places = {path: place for place, path in enumerate(tasks)}
    try:
        with raise_task_errors():
            positions = PositionSearch(spark, table, tasks).find(groups, places)
            return write_position_deletes(positions, layout, list(tasks.values()), writers, as_vectors=vectors)
    finally:
        release_reads(spark, table, MAINTAINING)


def commit_conversion(
    spark: SparkSession, table: Table, made: Conversion, name: str, holds: Callable[[], bool] = lambda: True
) -> None:
    """Bring a conversion into the table: the equality deletes and the merged delete files leave, the new ones come.

    Raises:
        CommitRefused: another writer changed the same data files; what was written may be deleted.
        CommitUnknown, RetriableError: as `commit.commit_attempts.commit_exactly_once`.
    """
    commit_id = uuid.uuid4().hex
    summary = {
        CREATED_BY: name,
        MAINTENANCE_TASK: CONVERT,
        CONVERTED_SEQUENCE: str(max(file.sequence_number for file in made.equality_deletes)),
    }

    def update() -> Any:
        rewrite = table.java.newRewrite().toBranch(table.branch).validateFromSnapshot(made.base)
        for key, value in summary.items():
            rewrite.set(key, value)
        for delete in made.equality_deletes:
            rewrite.deleteFile(delete.java)
        for task in made.files:
            for file in merged_deletes(task):
                rewrite.deleteFile(file)
        for file in table.content_files(made.written):
            rewrite.addFile(file)
        return rewrite

    referenced = frozenset(task.path for task in made.files)

    def rule(ancestors: Ancestors) -> bool:
        found = (_later_snapshot(spark, table, snapshot, commit_id) for snapshot in ancestors)
        return find_conflict(found, made.base, referenced) is None and holds()

    commit_exactly_once(table, commit_id, update, rule)


def merged_deletes(task: FileScanTask) -> list[Any]:
    """Return the position deletes that are about this data file alone: the new ones stand for them."""
    if not any(delete.alone for delete in task.place.deletes):
        return []
    return [file for file in task.java().deletes() if file.referencedDataFile() is not None]


def _later_snapshot(spark: SparkSession, table: Table, snapshot: Any, commit_id: str) -> LaterSnapshot:
    summary = to_dict(snapshot.summary())

    def files() -> Iterable[str]:
        changes = jvm(spark).org.apache.iceberg.SnapshotChanges.builderFor(table.java).snapshot(snapshot).build()
        gone = (str(file.location()) for file in iterate(changes.removedDataFiles()))
        hit = (str(file.referencedDataFile()) for file in iterate(changes.addedDeleteFiles()))
        return {*gone, *hit}

    own = summary.get(COMMIT_ID) == commit_id
    return LaterSnapshot(int(snapshot.snapshotId()), str(snapshot.operation()), summary, files, own)


def _count_bytes(descriptions: Iterable[FileDescription]) -> int:
    """Count the bytes of files once each; vectors share files."""
    return sum({description.path: description.size_bytes for description in descriptions}.values())
