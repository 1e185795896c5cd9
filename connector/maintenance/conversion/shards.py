"""Groups of deletes and data files -> shares of tasks: data files, and deletes whose keys are looked for there. Pure.

What Arrow cannot read as Iceberg's readers do is in no share: see `position_search`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.write.position_deletes import DataFileDeletes
from connector.maintenance.conversion.plan import EqualityDeleteFile, JoinGroup, Scope

MOST_RECORDS = 20_000_000
"""Of more keys a task does not read all: they are joined by a shuffle."""

_OPENING_ROWS = 20_000
"""Opening a file costs about as much as reading so many keys."""

_PARQUET, _SUFFIX = "parquet", ".parquet"


@attrs.frozen
class KeyDeletes:
    """Equality delete files by the key of `layout`, all global or all of a partition: paths and sequence numbers, the
    oldest first.
    """

    layout: TableLayout
    files: tuple[tuple[str, int], ...]


@attrs.frozen
class SearchedFile:
    """A data file; `oldest` has places in the shard's deletes, and the least sequence number of those that apply."""

    path: str
    size_bytes: int
    place: DataFileDeletes
    oldest: tuple[tuple[int, int], ...]


@attrs.frozen
class Shard:
    """What one task searches: files of a partition come together."""

    deletes: tuple[KeyDeletes, ...]
    files: tuple[SearchedFile, ...]


@attrs.frozen
class _Need:
    """That the deletes of a group apply to a data file: those of `scope`, by path, the oldest with number `oldest`."""

    group: int
    scope: Scope | None
    oldest: int
    deletes: frozenset[str]


def plan_shards(
    groups: Sequence[JoinGroup], layout: TableLayout, tasks: Mapping[str, FileScanTask], most: int
) -> tuple[Shard, ...]:
    """Split the data files that Arrow may read among tasks; those left out are in no shard.

    Args:
        groups: which deletes meet which data files.
        layout: the table.
        tasks: the data files by path.
        most: the greatest number of shards; where deletes are much to read, which every task does, there are fewer.
    """
    layouts = [_layout_of(group, layout) for group in groups]
    needs: dict[str, list[_Need]] = {}
    for number, group in enumerate(groups):
        for need, path in _needs_of(number, group):
            needs.setdefault(path, []).append(need)
    paths = [path for path in needs if _is_readable(tasks[path]) and all(layouts[need.group] for need in needs[path])]
    paths.sort(key=lambda path: (_places_of(needs[path]), -tasks[path].records, path))
    count = min(most, len(paths), _count_worthwhile(groups, [tasks[path] for path in paths]))
    return tuple(_build_shard(some, needs, groups, layouts, tasks) for some in _split(paths, tasks, count))


def _layout_of(group: JoinGroup, layout: TableLayout) -> TableLayout | None:
    """Return the layout with the group's columns as its key; None where Arrow does not read its deletes."""
    if group.records > MOST_RECORDS or any(file.data_format != _PARQUET for file in group.deletes):
        return None
    names = tuple(field.name for field in layout.schema.fields if field.field_id in group.equality_ids)
    return attrs.evolve(layout, id_columns=names) if len(names) == len(group.equality_ids) else None


def _needs_of(number: int, group: JoinGroup) -> Iterator[tuple[_Need, str]]:
    known = frozenset(file.path for file in group.deletes)
    for file, oldest in zip(group.data_files, group.oldest, strict=True):
        scope = None if group.scopes is None else file.scope
        yield _Need(number, scope, oldest, file.deletes & known), file.path


def _places_of(needs: Iterable[_Need]) -> list[tuple[int, str]]:
    return [(need.group, str(need.scope)) for need in needs]


def _is_readable(task: FileScanTask) -> bool:
    deletes = task.place.deletes
    return task.data_format == _PARQUET and all(
        delete.offset is not None or delete.path.endswith(_SUFFIX) for delete in deletes
    )


def _work(records: int) -> int:
    return records + _OPENING_ROWS


def _count_worthwhile(groups: Sequence[JoinGroup], files: Iterable[FileScanTask]) -> int:
    """Count the tasks that have more of data files to read than of deletes which all of them read; at least one."""
    everywhere = sum(_work(file.records) for group in groups if group.scopes is None for file in group.deletes)
    return max(1, sum(_work(task.records) for task in files) // max(1, everywhere))


def _split(paths: Sequence[str], tasks: Mapping[str, FileScanTask], count: int) -> list[list[str]]:
    """Cut a sequence into parts with about as many rows each."""
    parts: list[list[str]] = [[] for _ in range(count)]
    total, before = sum(_work(tasks[path].records) for path in paths), 0
    for path in paths:
        work = _work(tasks[path].records)
        parts[(2 * before + work) * count // (2 * total)].append(path)
        before += work
    return [part for part in parts if part]


def _build_shard(
    paths: Sequence[str],
    needs: Mapping[str, Sequence[_Need]],
    groups: Sequence[JoinGroup],
    layouts: Sequence[TableLayout | None],
    tasks: Mapping[str, FileScanTask],
) -> Shard:
    wanted: dict[tuple[int, Scope | None], set[str]] = {}
    for path in paths:
        for need in needs[path]:
            wanted.setdefault((need.group, need.scope), set()).update(need.deletes)
    places = {key: place for place, key in enumerate(wanted)}
    files = tuple(
        SearchedFile(
            path,
            tasks[path].size_bytes,
            tasks[path].place,
            tuple((places[need.group, need.scope], need.oldest) for need in needs[path]),
        )
        for path in paths
    )
    deletes = (_build_deletes(layouts[group], groups[group].deletes, chosen) for (group, _), chosen in wanted.items())
    return Shard(tuple(deletes), files)


def _build_deletes(layout: TableLayout | None, deletes: Sequence[EqualityDeleteFile], chosen: set[str]) -> KeyDeletes:
    assert layout is not None
    files = ((file.path, file.sequence_number) for file in deletes if file.path in chosen)
    return KeyDeletes(layout, tuple(sorted(files, key=lambda file: (file[1], file[0]))))
