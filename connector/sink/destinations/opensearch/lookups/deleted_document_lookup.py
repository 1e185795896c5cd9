"""Late candidates among changes of documents -> those that are newer than their key's last hard delete.

The versions of documents that are there decide by themselves; of deleted ones the cluster forgets them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's custom

from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.sink.destinations.late_events import drop_late_events
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import JobResult
from connector.sink.model.task_output import OutputKind


@attrs.frozen(eq=False)
class DeletedDocumentLookup:
    """Asks the table of deleted keys."""

    plan: BatchPlan
    deleted_keys: DeletedKeysTable

    def applies(self, table: TablePlan, result: JobResult) -> bool:
        """Tell whether there are late candidates."""
        return table.index in result.late_ranges

    def run(self, outputs: DataFrame, table: TablePlan, result: JobResult, until: ExitStack) -> Iterator[DataFrame]:
        """Return the changes that are not late, with the key changes of their buckets, for the reduce task."""
        until.callback(self.deleted_keys.close)
        deleted = self.deleted_keys.of(table.layout.name)
        candidates = outputs.where(F.col("kind") == OutputKind.LATE_CANDIDATES)
        count = result.late_ranges[table.index].count
        yield drop_late_events(candidates, count, self.plan, table, None, deleted)
        yield outputs.where(F.col("kind") == OutputKind.KEY_CHANGES)
