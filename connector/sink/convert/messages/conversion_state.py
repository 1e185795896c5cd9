"""A run of consumed records -> what was made of them so far, and their keys by the types of each table."""

from __future__ import annotations

from collections.abc import Callable

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.columns.column_renames import follow_key_renames
from connector.sink.convert.columns.expected_types import find_own_texts
from connector.sink.convert.columns.routed_types import is_struct_alike
from connector.sink.convert.columns.schema_needs import find_unknown_fields
from connector.sink.convert.events.documents import name_document_keys
from connector.sink.convert.record_keys import RecordKeys, key_type
from connector.sink.convert.row_builder import BuiltRows
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import BatchPlan, SchemaChange, TablePlan
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncates import Truncate
from serde.arrays import Ints
from serde.events.changes import Changes
from serde.events.images.documents import ID_COLUMN
from serde.faults import RecordError
from serde.messages import DecodedMessages

ReadKeys = Callable[[TablePlan | None], RecordKeys]
"""Reads the keys of a run by the types of a table."""
ReadValues = Callable[[TablePlan | None, Ints], DecodedMessages]
"""Reads some values of a run, ascending rows, by the types of a table."""


class MessageConversion:
    """What was made of one run's messages so far, and their keys."""

    def __init__(self, run: ConsumerRecords, plan: BatchPlan, read_keys: ReadKeys, read_values: ReadValues) -> None:
        self.run, self.plan, self._read_keys, self.read_values = run, plan, read_keys, read_values
        self.parts: list[ChangeBatch] = []
        self.tables: list[int] = []
        self.needs: list[SchemaChange] = []
        self.faults: list[RecordError] = []
        self.truncates: list[Truncate] = []
        self.progress: list[SourceProgress] = []
        self.metrics = TaskMetrics()
        self._keys: dict[tuple[object, ...] | None, RecordKeys] = {}

    def keys(self, table: TablePlan | None, *, documents: bool = False) -> RecordKeys | None:
        """Return the record keys by the types of a table, decoded once; None where they are not looked at.

        documents: whether they are of documents, where there is no table yet that would tell.
        """
        if not (self.plan.record_keys if table is None else table.keyed):
            return None
        keys = self._find_keys(table)
        keys = keys if table is None else follow_key_renames(keys, table.renames)
        if self.plan.case_insensitive and table is not None:
            keys = keys.match_case((*table.layout.keys, *table.layout.key_columns))
        named = documents if table is None else table.layout.keys == (ID_COLUMN,)
        return name_document_keys(keys) if named else keys

    def _find_keys(self, table: TablePlan | None) -> RecordKeys:
        """Return the keys; events that name their tables share one reading of them where the tables' types agree."""
        if table is not None and self.plan.routing is not None:
            shared = self._find_keys(None)
            kind = key_type(table)
            if kind is None or (not shared.faults and is_struct_alike(shared.row, kind)):
                return shared
        place = None if table is None else (key_type(table), find_own_texts(table, any_case=self.plan.case_insensitive))
        if place not in self._keys:
            self._keys[place] = self._read_keys(table)
        return self._keys[place]

    def add_rows(self, part: ChangeBatch, table: TablePlan) -> None:
        """Take rows of a table."""
        if len(part):
            self.parts.append(part)
            self.tables.append(table.index)

    def take(self, built: BuiltRows, table: TablePlan) -> None:
        """Take what was made of changes of a table."""
        self.add_rows(built.part, table)
        self.faults.extend(built.faults)
        if not built.is_uncounted:
            self.metrics += built.metrics
        self.note_progress(built.progress)

    def note_progress(self, progress: SourceProgress) -> None:
        """Note how far the sources of a table came."""
        if progress.marks or progress.after_delete >= 0:
            self.progress.append(progress)

    def count_unknown(self, change: Changes, table: TablePlan) -> None:
        """Note which fields of its changes a table does not have."""
        unknown = frozenset((table.index, field) for field in find_unknown_fields(change, table, self.plan))
        self.metrics += TaskMetrics(drift=unknown)
