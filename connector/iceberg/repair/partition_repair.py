"""Files under wrong partition values -> the same files under those of their rows, in new manifests. On the driver.

Files of earlier versions may stand under null instead of NaN or an infinity, and under another year, month, day or hour
where their times are beyond the years of Arrow's calendar. Readers leave out such files by the partitions that they are
asked for, and take null for what is in them. What the rows have is told by the files' own counts and bounds: rows of
one file had one value each, or most often. Deletes go with the files that they are for: by position with their data
file, by equality with their own values. Where a file has rows of several partitions nothing but rewriting it helps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import orjson
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform, TimeTransform
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    PrimitiveType,
    TimestampNanoType,
    TimestamptzNanoType,
)

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import iterate, jvm, map_java_errors
from connector.iceberg.repair.manifest_repair import LiveFile, iter_branches, iter_live_files, replace_manifests
from connector.iceberg.types.values.single_values import encode_json
from connector.iceberg.write.partitioning import count_times, result_type
from connector.settings.iceberg.write_mode import MAIN_BRANCH

_DATE_BYTES, _TIME_BYTES = 4, 8


@attrs.frozen
class MisplacedFiles:
    """What stands under wrong partition values: how many files, by which columns, in which of main's manifests.

    `mixed` is how many files have rows of several partitions, or deletes whose files nobody can tell: while there are
    deletes of that kind nothing is moved. `branches` are those besides main that have such files too.
    """

    delete_files: int = 0
    data_files: int = 0
    columns: tuple[str, ...] = ()
    manifests: Mapping[str, tuple[LiveFile, ...]] = attrs.field(factory=dict)
    mixed: int = 0
    branches: tuple[str, ...] = ()


@attrs.frozen
class CheckedField:
    """A partition field whose values files can be under wrongly: its place in the spec, and what it is of."""

    place: int
    name: str
    field: PartitionField
    source: IcebergType


class MixedRows(Exception):
    """A file has rows of several partitions, or does not tell what its rows have."""


def find_checked_fields(table: StaticTable) -> dict[int, tuple[CheckedField, ...]]:
    """Return the fields of a table's specs that are looked at, by the id of the spec."""
    schemas = list(table.schemas().values())
    found = {}
    for number, spec in table.specs().items():
        fields = [(place, field, _find_source(field, schemas)) for place, field in enumerate(spec.fields)]
        found[number] = tuple(
            CheckedField(place, source[0], field, source[1])
            for place, field, source in fields
            if source is not None and _is_checked(field, source[1])
        )
    return found


def _find_source(field: PartitionField, schemas: Sequence[Schema]) -> tuple[str, IcebergType] | None:
    """The column of a field, as the newest schema that has it says."""
    for schema in reversed(schemas):
        name = schema.find_column_name(field.source_id)
        if name is not None:
            return str(name), schema.find_type(field.source_id)
    return None


def _is_checked(field: PartitionField, source: IcebergType) -> bool:
    if isinstance(field.transform, IdentityTransform):
        return isinstance(source, FloatType | DoubleType)
    return isinstance(field.transform, TimeTransform)


def find_right_values(file: DataFile, fields: Sequence[CheckedField]) -> dict[int, Any]:
    """Return the partition values that a file should have and has not, as Iceberg's JSON has them, by place.

    Raises:
        MixedRows: it has none that is right for all of its rows.
    """
    right = {}
    for checked in fields:
        find = _find_number if isinstance(checked.field.transform, IdentityTransform) else _find_time
        stored = file.partition[checked.place]
        value = find(file, checked, stored)
        if value is not None and value != stored:
            right[checked.place] = encode_json(result_type(checked.field, checked.source), value)
    return right


def _find_number(file: DataFile, checked: CheckedField, stored: Any) -> float | None:
    """The number without digits that all rows of a file under null have; None where it is right."""
    if stored is not None:
        return None
    number = checked.field.source_id
    values, nulls, nans = (
        (counts or {}).get(number) for counts in (file.value_counts, file.null_value_counts, file.nan_value_counts)
    )
    if values is None or nulls is None or nulls == values:
        return None
    lower, upper = ((bounds or {}).get(number) for bounds in (file.lower_bounds, file.upper_bounds))
    if not nulls and nans == values:
        return math.nan
    if not nulls and not nans and lower is not None and lower == upper:
        return float(from_bytes(cast("PrimitiveType", checked.source), lower))
    raise MixedRows


def _find_time(file: DataFile, checked: CheckedField, stored: Any) -> int | None:
    """The year, month, day or hour of all rows of a file; None where it does not tell, or they are null."""
    number = checked.field.source_id
    bounds = [(found or {}).get(number) for found in (file.lower_bounds, file.upper_bounds)]
    size = _DATE_BYTES if isinstance(checked.source, DateType) else _TIME_BYTES
    ends = [bound for bound in bounds if bound is not None and len(bound) == size]
    if len(ends) < len(bounds):
        return None
    stored_ends = [int.from_bytes(end, "little", signed=True) for end in ends]
    column = pa.array(stored_ends, pa.int32() if size == _DATE_BYTES else pa.int64()).cast(_arrow_time(checked.source))
    first, last = count_times(cast("TimeTransform[Any]", checked.field.transform), column).to_pylist()
    if first == last == stored:
        return None
    if first != last or (file.null_value_counts or {}).get(number):
        raise MixedRows
    return int(first)


def _arrow_time(source: IcebergType) -> pa.DataType:
    if isinstance(source, DateType):
        return pa.date32()
    return pa.timestamp("ns" if isinstance(source, TimestampNanoType | TimestamptzNanoType) else "us")


def find_misplaced_files(table: Table) -> MisplacedFiles:
    """Look for such files in the newest snapshots of the table's branches; what is counted is main's.

    Cost: reads every manifest once, where the table is, or was, partitioned by such a field. Raises as `Table.reading`.
    """
    metadata = table.metadata()
    checked = find_checked_fields(metadata)
    if not any(checked.values()):
        return MisplacedFiles()
    branches, main = list[str](), MisplacedFiles()
    for name, snapshot in iter_branches(metadata):
        search = _Search(table, metadata.io, checked)
        if name == MAIN_BRANCH:
            main = search.look(snapshot)
        elif search.has_any(snapshot):
            branches.append(name)
    return attrs.evolve(main, branches=tuple(sorted(branches)))


class _Search:
    """Looks through the manifests of one snapshot."""

    def __init__(self, table: Table, io: FileIO, checked: Mapping[int, tuple[CheckedField, ...]]) -> None:
        self._table, self._io, self._checked = table, io, checked
        self._moved: dict[str, Mapping[int, Any]] = {}
        self._left: set[tuple[int, tuple[Any, ...]]] = set()
        self._mixed, self._unclear = 0, 0
        self._columns = Counter[str]()

    def look(self, snapshot: Snapshot) -> MisplacedFiles:
        """Look at the newest snapshot of main."""
        with self._table.reading("the manifests"):
            ours = self._list(snapshot)
            data = {m.manifest_path: self._read(m) for m in ours if m.content == ManifestContent.DATA}
            if not self._moved:
                return MisplacedFiles(mixed=self._mixed)
            deletes = {m.manifest_path: self._read_deletes(m) for m in ours if m.content == ManifestContent.DELETES}
        if self._unclear:
            return MisplacedFiles(mixed=self._mixed + self._unclear)
        changed = {path: files for path, files in {**data, **deletes}.items() if any(one.partition for one in files)}
        count = sum(bool(one.partition) for files in changed.values() for one in files)
        rows = len(self._moved)
        return MisplacedFiles(count - rows, rows, tuple(sorted(self._columns)), changed, self._mixed)

    def has_any(self, snapshot: Snapshot) -> bool:
        """Tell whether another branch has such data files."""
        with self._table.reading("the manifests"):
            for manifest in self._list(snapshot):
                if manifest.content == ManifestContent.DATA:
                    self._read(manifest)
        return bool(self._moved or self._mixed)

    def _list(self, snapshot: Snapshot) -> list[ManifestFile]:
        return [one for one in snapshot.manifests(self._io) if self._checked.get(one.partition_spec_id)]

    def _read(self, manifest: ManifestFile) -> tuple[LiveFile, ...]:
        fields, read = self._checked[manifest.partition_spec_id], list[LiveFile]()
        for file, snapshot in iter_live_files(manifest, self._io):
            right: Mapping[int, Any] = {}
            try:
                right = find_right_values(file, fields)
            except MixedRows:
                self._mixed += 1
            if right:
                self._moved[str(file.file_path)] = right
                self._left.add((manifest.partition_spec_id, _values(file)))
                self._columns.update(checked.name for checked in fields if checked.place in right)
            read.append(LiveFile(file.content, str(file.file_path), snapshot, partition=right))
        return tuple(read)

    def _read_deletes(self, manifest: ManifestFile) -> tuple[LiveFile, ...]:
        fields, read = self._checked[manifest.partition_spec_id], list[LiveFile]()
        targets = _referenced_files(self._table, manifest.manifest_path)
        for (file, snapshot), target in zip(iter_live_files(manifest, self._io), targets, strict=True):
            right: Mapping[int, Any] = {}
            among = (manifest.partition_spec_id, _values(file)) in self._left
            try:
                if file.content == DataFileContent.EQUALITY_DELETES:
                    right = find_right_values(file, fields)
                    self._unclear += among and not right
                elif target is not None:
                    right = self._moved.get(target, {})
                else:
                    self._unclear += among
            except MixedRows:
                self._unclear += 1
            read.append(LiveFile(file.content, str(file.file_path), snapshot, partition=right))
        return tuple(read)


def _values(file: DataFile) -> tuple[Any, ...]:
    return tuple(file.partition[place] for place in range(len(file.partition)))


def _referenced_files(table: Table, path: str) -> Iterator[str | None]:
    """Return the data file that each live delete file of a manifest is for; None where it may be several.

    PyIceberg does not read what deletion vectors refer to.
    """
    java, iceberg = table.java, jvm(table.driver).org.apache.iceberg
    with map_java_errors(f"reading the manifests of table {table.name}"):
        manifest = next(
            one for one in iterate(java.currentSnapshot().allManifests(java.io())) if str(one.path()) == path
        )
        reader = iceberg.ManifestFiles.readDeleteManifest(manifest, java.io(), java.specs())
        try:
            for file in iterate(reader):
                target = iceberg.util.ContentFileUtil.referencedDataFileLocation(file)
                yield None if target is None else str(target)
        finally:
            reader.close()


def move_misplaced_files(table: Table, found: MisplacedFiles) -> int:
    """Put files under the partition values of their rows, in one commit; give how many.

    Raises as `manifest_repair.remove_misleading_bounds`.
    """
    parser = jvm(table.driver).org.apache.iceberg.ContentFileParser

    def change(entry: LiveFile, file: Any, spec: Any) -> Any:
        if not entry.partition:
            return file
        document = orjson.loads(parser.toJson(file, spec))
        partition = document["partition"]
        ids = [str(field.fieldId()) for field in iterate(spec.fields())]
        values = partition if isinstance(partition, list) else [partition.get(number) for number in ids]
        document["partition"] = [entry.partition.get(place, value) for place, value in enumerate(values)]
        return next(table.content_files([FileDescription.of(document)]))

    replace_manifests(table, found.manifests, change)
    return found.delete_files + found.data_files
