"""A snapshot -> Iceberg's scan tasks: which files it has, and which deletes apply to each.

Iceberg's own code plans (spec, "Scan Planning"); its answer crosses Py4J as one JSON text, because a call per file
would cost more than the planning. Metadata only, on the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any

import attrs
import orjson
from pyspark.sql import SparkSession

from connector.iceberg.catalog.table import Table
from connector.iceberg.java import iterate, jvm, map_java_errors
from connector.iceberg.write.position_deletes import DataFileDeletes, PositionDeletes

JavaTask = Any
JavaFile = Any
Entry = tuple[str, int, int]
"""A data file in a table: its path, and where the path is listed more than once, its sequence number and a count."""


@attrs.frozen(eq=False)
class FileScanTask:
    """A data file to read and the delete files that apply to it.

    `data_format` is its manifest's word, as a path need not tell. `deletes` holds a name per delete file (see
    `_format_delete_name`), `equality_ids` the fields that equality deletes go by; `first_row_id` is None where rows
    have no lineage. `place` is what a further delete of its rows has to know.
    """

    java: Callable[[], JavaTask]
    path: str
    data_format: str
    size_bytes: int
    records: int
    first_row_id: int | None
    deletes: frozenset[str]
    equality_ids: frozenset[int]
    place: DataFileDeletes

    @property
    def row_ids_readable(self) -> bool:
        """Whether the ids that its rows may have can be read: Iceberg reads none of ORC files."""
        return self.data_format != "orc"


def tasks_by_entry(*plans: Sequence[FileScanTask]) -> list[dict[Entry, FileScanTask]]:
    """Return the tasks of plans of one table by entry, as it may list a file more than once (`add_files` unchecked).

    Which deletes apply to an entry depends on its sequence number: only files that are listed again are asked for it.
    A plan's tasks keep their order.
    """
    repeated = frozenset[str]().union(*map(find_repeated_paths, plans))
    return [_by_entry(plan, repeated) for plan in plans]


def find_repeated_paths(tasks: Iterable[FileScanTask]) -> set[str]:
    """Return the paths that are listed more than once."""
    return {path for path, entries in Counter(task.path for task in tasks).items() if entries > 1}


def _by_entry(tasks: Iterable[FileScanTask], repeated: Collection[str]) -> dict[Entry, FileScanTask]:
    found: dict[Entry, FileScanTask] = {}
    for task in tasks:
        sequence = int(task.java().file().dataSequenceNumber()) if task.path in repeated else 0
        number = next(n for n in count() if (task.path, sequence, n) not in found) if task.path in repeated else 0
        found[task.path, sequence, number] = task
    return found


def plan_files(spark: SparkSession, table: Table, snapshot_id: int, where: str | None = None) -> list[FileScanTask]:
    """Return one task for each data file of a snapshot, with the deletes that apply to it.

    With `where` (Iceberg's JSON of an expression) only files that may hold such rows, by their partition and bounds.
    Cost: reads the manifests that may have such files, by default all.
    """
    iceberg = jvm(spark).org.apache.iceberg
    with map_java_errors(f"planning a read of {table.name} at snapshot {snapshot_id}"):
        scan = table.java.newScan().useSnapshot(snapshot_id).ignoreResiduals()
        if where is not None:
            scan = scan.filter(table.expression(where))
        files = scan.planFiles()
        try:
            tasks = iceberg.relocated.com.google.common.collect.Lists.newArrayList(files)
        finally:
            files.close()
        return describe_tasks(spark, table, tasks)


def describe_tasks(spark: SparkSession, table: Table, tasks: Any) -> list[FileScanTask]:
    """Wrap a Java list of file scan tasks."""
    rest = jvm(spark).org.apache.iceberg.rest
    builder = rest.responses.PlanTableScanResponse.builder().withPlanStatus(rest.PlanStatus.COMPLETED)
    response = builder.withFileScanTasks(tasks).withSpecsById(_to_writable_specs(spark, table)).build()
    document = orjson.loads(rest.responses.PlanTableScanResponseParser.toJson(response))
    deletes = document.get("delete-files", ())
    return [
        _build_task(tasks, place, task["data-file"], [deletes[i] for i in task.get("delete-file-references", ())])
        for place, task in enumerate(document.get("file-scan-tasks", ()))
    ]


def _to_writable_specs(spark: SparkSession, table: Table) -> Any:
    """Return the table's Java specs by id, as Iceberg's JSON of files takes them.

    Fields that were dropped from a table of format 1 stay, as void ones. Of a spec with no others it expects files
    without partition values, which they have (null): there one field counts as what it was.
    """
    parser, specs = jvm(spark).org.apache.iceberg.PartitionSpecParser, table.java.specs()
    writable = jvm(spark).java.util.HashMap(specs)
    for entry in iterate(specs.entrySet()):
        spec = entry.getValue()
        if not spec.isUnpartitioned() or not spec.fields().size():
            continue
        document, schema = orjson.loads(parser.toJson(spec)), spec.schema()
        known = [one for one in document["fields"] if schema.findField(one["source-id"]) is not None]
        if known:
            known[0]["transform"] = "identity"
            writable.put(entry.getKey(), parser.fromJson(schema, orjson.dumps(document).decode()))
    return writable


def _return_task(task: JavaTask) -> JavaTask:
    return task


def _build_task(tasks: Any, place: int, file: dict[str, Any], deletes: Sequence[dict[str, Any]]) -> FileScanTask:
    positions = [delete for delete in deletes if delete["content"] == "position-deletes"]
    return FileScanTask(
        java=partial(tasks.get, place),
        path=file["file-path"],
        data_format=file["file-format"].lower(),
        size_bytes=file["file-size-in-bytes"],
        records=file["record-count"],
        first_row_id=file.get("first-row-id"),
        deletes=frozenset(_format_delete_name(delete["file-path"], delete.get("content-offset")) for delete in deletes),
        equality_ids=frozenset(field_id for delete in deletes for field_id in delete.get("equality-ids") or ()),
        place=DataFileDeletes(
            file["spec-id"], tuple(file["partition"]), tuple(map(_parse_position_deletes, positions))
        ),
    )


def _parse_position_deletes(delete: dict[str, Any]) -> PositionDeletes:
    offset, size = delete.get("content-offset"), delete.get("content-size-in-bytes")
    return PositionDeletes(delete["file-path"], delete.get("referenced-data-file") is not None, offset, size)


def delete_file_name(file: JavaFile) -> str:
    """Return a delete file's name, as tasks have it among their deletes."""
    return _format_delete_name(str(file.location()), file.contentOffset())


def _format_delete_name(path: str, offset: int | None) -> str:
    """Name a delete file; deletion vectors share files, so their offset is part of it."""
    return path if offset is None else f"{path}#{offset}"


def tasks_without_deletes(spark: SparkSession, table: Table, files: Iterable[JavaFile]) -> tuple[FileScanTask, ...]:
    """Return tasks that read data files whole, whatever was deleted of them."""
    tasks = jvm(spark).java.util.ArrayList()
    build = _TaskBuilder(spark)
    specs: dict[int, tuple[str, str]] = {}
    for file in files:
        spec_id = int(file.specId())
        if spec_id not in specs:
            specs[spec_id] = build.texts(table.java.specs().get(spec_id))
        tasks.add(build.task(file, *specs[spec_id]))
    return tuple(describe_tasks(spark, table, tasks)) if tasks else ()


def keep_deletes(spark: SparkSession, task: FileScanTask, wanted: frozenset[str]) -> FileScanTask:
    """Return the same file with only some of its deletes."""
    java, build = task.java(), _TaskBuilder(spark)
    deletes = [file for file in iterate(java.deletes()) if delete_file_name(file) in wanted]
    made = build.task(java.file(), *build.texts(java.spec()), deletes)
    return attrs.evolve(task, java=partial(_return_task, made), deletes=task.deletes & wanted)


def add_deletes(spark: SparkSession, task: FileScanTask, deletes: Sequence[JavaFile]) -> FileScanTask:
    """Return the same file with more deletes, whatever their sequence numbers; those that it has already count once."""
    java, build = task.java(), _TaskBuilder(spark)
    more = [file for file in deletes if delete_file_name(file) not in task.deletes]
    made = build.task(java.file(), *build.texts(java.spec()), [*iterate(java.deletes()), *more])
    ids = (int(field_id) for file in more for field_id in iterate(file.equalityFieldIds()))
    names = frozenset(map(delete_file_name, more))
    return attrs.evolve(
        task, java=partial(_return_task, made), deletes=task.deletes | names, equality_ids=task.equality_ids.union(ids)
    )


class _TaskBuilder:
    """Makes scan tasks; a call through Py4J costs about 0.1 ms, so what they share is made once."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway  # noqa: SLF001 - arrays are made by the gateway
        assert gateway is not None
        self._iceberg = jvm(spark).org.apache.iceberg
        expressions = self._iceberg.expressions
        self._everything = expressions.ResidualEvaluator.unpartitioned(expressions.Expressions.alwaysTrue())
        self._array = partial(gateway.new_array, self._iceberg.DeleteFile)
        self._none = self._array(0)

    def texts(self, spec: Any) -> tuple[str, str]:
        """Return a spec and the schema that it was bound to, which may have columns that are gone now, as JSON."""
        return self._iceberg.SchemaParser.toJson(spec.schema()), self._iceberg.PartitionSpecParser.toJson(spec)

    def task(self, file: JavaFile, schema: str, spec: str, deletes: Sequence[JavaFile] = ()) -> JavaTask:
        """Make a task that reads one whole file with these deletes."""
        array = self._array(len(deletes)) if deletes else self._none
        for place, delete in enumerate(deletes):
            array[place] = delete
        return self._iceberg.BaseFileScanTask(file, array, schema, spec, self._everything)
