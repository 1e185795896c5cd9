"""Groups of data files that Iceberg's Spark code does not read -> the same rows in fewer files, by code of ours.

Iceberg's planner, which needs no Spark, says which files go together, as for its own rewrite. Rows stay on executors;
on the driver are plans and commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa
import structlog
from pyspark.sql import SparkSession

from connector.errors import CommitRefused, CommitUnknown, ConnectorError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import DATA_PATH_PROPERTY, TARGET_FILE_SIZE_PROPERTY, TableLayout
from connector.iceberg.commit.commit_summary import CREATED_BY
from connector.iceberg.commit.settlement import settle_commits
from connector.iceberg.java import iterate, jvm, map_java_errors
from connector.iceberg.read.all_columns import complete_rows, readable_schema
from connector.iceberg.read.frame_columns import column_name
from connector.iceberg.read.scan_planning import FileScanTask, describe_tasks
from connector.iceberg.read.table_reader import MAINTAINING, TableReader, release_reads
from connector.iceberg.write.row_lineage import with_lineage
from connector.iceberg.write.table_writer import TableWriter
from connector.maintenance.conversion.conversion import discard_files, merged_deletes
from connector.maintenance.conversion.position_files import DESCRIBED_FILES, FILE_LABEL, read_descriptions, to_batches
from connector.maintenance.rewrite_rules import WritePermit
from connector.maintenance.tasks import MAINTENANCE_TASK, REWRITE
from connector.runtime.spark.task_errors import raise_task_errors

JavaPlan = Any
JavaGroup = Any
"""Java's `RewriteFileGroup`."""


@attrs.frozen(eq=False)
class GroupedFiles:
    """Data files, and those that have their live rows."""

    tasks: tuple[FileScanTask, ...] = ()
    written: tuple[FileDescription, ...] = ()

    def join(self, other: GroupedFiles) -> GroupedFiles:
        """Return both as one."""
        return GroupedFiles((*self.tasks, *other.tasks), (*self.written, *other.written))

    def counts(self) -> dict[str, int]:
        """Return what the log and metrics tell of them."""
        size_bytes = sum(task.size_bytes for task in self.tasks)
        return {"removed": len(self.tasks), "added": len(self.written), "bytes": size_bytes, "failed": 0}


def plan_rewrite(spark: SparkSession, table: Table, base: int, options: Mapping[str, str]) -> JavaPlan:
    """Return Iceberg's plan of one call of a rewrite with these options, of a snapshot. Cost: the manifests."""
    java = jvm(spark)
    everything = java.org.apache.iceberg.expressions.Expressions.alwaysTrue()
    planner = java.org.apache.iceberg.actions.BinPackRewriteFilePlanner(table.java, everything, base, False)
    given = java.java.util.HashMap()
    for key, value in options.items():
        given.put(key, value)
    planner.init(given)
    return planner.plan()


def merge_groups(
    spark: SparkSession, table: Table, options: Mapping[str, str], name: str, permit: WritePermit, *, by_groups: bool
) -> dict[str, int]:
    """Merge what Iceberg's planner finds by these options, in one commit, or in one for each group.

    Args, returns and errors are those of `spark_actions.rewrite_data_files`.
    """
    base = table.snapshot_id
    if base is None:
        return GroupedFiles().counts()
    layout, own = table.layout(), {TARGET_FILE_SIZE_PROPERTY: options["target-file-size-bytes"]}
    if permit.folder is not None:
        own[DATA_PATH_PROPERTY] = permit.folder
    written = attrs.evolve(layout, properties={**layout.properties, **own})
    merge = _GroupRewrite(spark, table, base, written, name, permit)
    with map_java_errors(f"rewriting files of {table.name}"):
        groups = list(iterate(plan_rewrite(spark, table, base, options).groups()))
        return merge.run_each(groups) if by_groups else merge.run(groups)


@attrs.frozen(eq=False)
class _GroupRewrite:
    spark: SparkSession
    table: Table
    base: int
    layout: TableLayout
    name: str
    permit: WritePermit

    def run(self, groups: Iterable[JavaGroup]) -> dict[str, int]:
        """Merge all groups, and commit that at once."""
        made = GroupedFiles()
        try:
            for group in groups:
                made = made.join(self._write(group))
            if made.tasks:
                self._commit(made)
        except CommitUnknown:
            raise
        except ConnectorError:
            discard_files(self.table, made.written)
            raise
        return made.counts()

    def run_each(self, groups: Sequence[JavaGroup]) -> dict[str, int]:
        """Merge and commit one group after the other; one that cannot be read keeps no other back.

        Where a commit is refused, what others did may concern the groups behind it, too: these are planned anew later.
        """
        done = GroupedFiles().counts()
        for place, group in enumerate(groups):
            try:
                merged = self.run([group])
            except CommitUnknown:
                raise
            except ConnectorError as error:
                rest = groups[place:] if isinstance(error, CommitRefused) else [group]
                done["failed"] += sum(int(one.inputFileNum()) for one in rest)
                structlog.get_logger().warning("files are not merged", table=self.table.name, reason=str(error))
                if len(rest) > 1:
                    break
            else:
                done = {figure: count + merged[figure] for figure, count in done.items()}
        return done

    def _write(self, group: JavaGroup) -> GroupedFiles:
        """Write the live rows of a group's files, under the table's schema and spec as they are now."""
        table, layout = self.table, self.layout
        tasks = describe_tasks(self.spark, table, group.fileScanTasks())
        schema = readable_schema(layout.schema_json)
        # None is read from ORC files: rows that are rewritten from them get new ids.
        lineage = table.has_row_ids and all(task.row_ids_readable for task in tasks)
        names = {column: column_name(place) for place, column in enumerate(schema.names)}
        task = _write_task(layout, names, lineage=lineage)
        try:
            rows = TableReader(self.spark, table, schema, MAINTAINING).read_live_rows(tasks, lineage=lineage)
            files = max(1, int(group.expectedOutputFiles()))
            with raise_task_errors():
                written = read_descriptions(rows.coalesce(files).mapInArrow(task, DESCRIBED_FILES))
        finally:
            release_reads(self.spark, table, MAINTAINING)
        return GroupedFiles(tuple(tasks), tuple(written))

    def _commit(self, made: GroupedFiles) -> None:
        """Bring merged files into the table; they keep the sequence number that it had when they were planned.

        So equality deletes that came meanwhile apply to them. Deletes of positions in single files go with these.
        """
        table = self.table
        number = int(table.java.snapshot(self.base).sequenceNumber())
        with settle_commits(table, f"rewriting files of {table.name}", self.permit.accepts) as java:
            update = java.newRewrite().toBranch(table.branch).validateFromSnapshot(self.base)
            update.set(CREATED_BY, self.name)
            update.set(MAINTENANCE_TASK, REWRITE)
            for task in made.tasks:
                update.deleteFile(task.java().file())
                for delete in merged_deletes(task):
                    update.deleteFile(delete)
            for file in table.content_files(made.written):
                update.addFile(file)
            update.dataSequenceNumber(number)
            update.commit()


def _write_task(
    layout: TableLayout, names: Mapping[str, str], *, lineage: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the task that writes rows as they are: frames of rows -> descriptions of files."""
    written = with_lineage(layout) if lineage else layout

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = TableWriter(written, FILE_LABEL)
        for batch in batches:
            writer.write_rows(complete_rows(layout, written, batch, names))
        yield from to_batches(writer.close())

    return task
