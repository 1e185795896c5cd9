"""Decoded messages -> changes -> rows, schema changes and faults of the tables that they are for. On executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.columns.column_fitting import fit_columns
from connector.sink.convert.columns.column_renames import follow_key_renames
from connector.sink.convert.columns.expected_types import find_expected_types, find_own_texts, find_routed_types
from connector.sink.convert.columns.field_matching import split_spellings
from connector.sink.convert.columns.routed_types import is_read_alike, is_struct_alike
from connector.sink.convert.columns.schema_needs import find_schema_change, find_unknown_fields
from connector.sink.convert.converters import unwrap_settings
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.events.documents import expand_documents, name_document_keys
from connector.sink.convert.events.event_fields import DEFAULT_OP_FIELD, read_operations
from connector.sink.convert.events.partial_updates import expand_partial_updates
from connector.sink.convert.events.truncate_events import drop_truncated, read_truncates, refuse_truncates
from connector.sink.convert.record_keys import RecordKeys, key_type
from connector.sink.convert.routing import RoutedChanges, gather_alike, route_changes
from connector.sink.convert.row_builder import (
    BuiltRows,
    ConvertedRows,
    build_rows,
    build_tombstones,
    complete_rows,
    convert_rows,
)
from connector.sink.convert.second_reading import find_clashing, route_again, sort_rows
from connector.sink.convert.value_keys import drop_rows_that_stay, find_rows_before, leaves_keys
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import BatchPlan, FieldRoutes, SchemaChange, TablePlan
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncates import OP_TRUNCATE, Truncate
from serde.arrays import Ints, children
from serde.events.changes import DELETED_COLUMN, Changes, slice_changes
from serde.events.flattened_order import find_connector, find_unplaced, judge_dates
from serde.events.images.documents import ID_COLUMN, holds_documents
from serde.events.images.envelope_images import split_images
from serde.events.images.unavailable_value import PLACEHOLDER, use_known_placeholder
from serde.events.kinds.cloudevents import is_cloud_event, unwrap_cloud_events
from serde.events.kinds.event_kind import is_envelope
from serde.events.unwrapping import extract_changes
from serde.faults import RecordError
from serde.messages import DecodedMessages, MessageBlock

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
        if built.progress.marks or built.progress.after_delete >= 0:
            self.progress.append(built.progress)

    def count_unknown(self, change: Changes, table: TablePlan) -> None:
        """Note which fields of its changes a table does not have."""
        unknown = frozenset((table.index, field) for field in find_unknown_fields(change, table, self.plan))
        self.metrics += TaskMetrics(drift=unknown)


def convert_messages(work: MessageConversion, table: TablePlan | None, values: DecodedMessages) -> DecodedRecords:
    """Turn messages into rows of `table`, or of the tables that they name where it is None."""
    plan, run = work.plan, work.run
    if plan.routing is None:
        for change, block, documents in _read_changes(work, table, values):
            if change is not None:
                _convert_changes(work, change, table, None, documents=documents)
            if not documents and leaves_keys(table):
                _delete_rows_before(work, block, table)
    else:
        _convert_named(work, values, plan.routing)
    for target in _find_tombstone_tables(plan, table) if len(values.tombstones) else ():
        keys = work.keys(target)
        if keys is not None:
            part, unkeyed = build_tombstones(run, values.tombstones, keys, target, plan)
            work.add_rows(part, target)
            work.faults.extend(unkeyed)
    unknown = frozenset(name for block in values.blocks for name in block.unknown)
    return DecodedRecords(
        tuple(work.parts),
        tuple(work.needs),
        tuple(keep_first_per_row(work.faults)),
        tuple(work.truncates),
        tuple(work.tables),
        tuple(work.progress),
        work.metrics + TaskMetrics(tombstones=len(values.tombstones), unknown_types=unknown),
    )


def _convert_named(work: MessageConversion, values: DecodedMessages, routes: FieldRoutes) -> None:
    """Take events that name their tables; those that could not be read beside others are read among their like."""
    clashing = list(find_clashing(values.faults, work.run.value))
    again = {int(row) for rows, _ in clashing for row in rows}
    left = tuple(fault for fault in values.faults if fault.row not in again)
    _convert_block_by_block(work, attrs.evolve(values, faults=left), routes)
    for rows, faults in clashing:
        # A table that is to be made for others first will be known when the job runs again.
        waiting = frozenset(need.table for need in work.needs)
        read = work.read_values(None, rows)
        told = {fault.row: fault for fault in faults}
        read = attrs.evolve(read, faults=tuple(told[fault.row] for fault in read.faults))
        _convert_block_by_block(work, read, routes, waiting)


def _convert_block_by_block(
    work: MessageConversion, values: DecodedMessages, routes: FieldRoutes, waiting: frozenset[str | None] = frozenset()
) -> None:
    for change, block, documents in _read_changes(work, None, values):
        if change is not None:
            _convert_routed(work, change, block, routes, waiting, documents=documents)
        if not documents and any(map(leaves_keys, work.plan.tables)):
            _delete_rows_before(work, block, None)


def _read_changes(
    work: MessageConversion, table: TablePlan | None, values: DecodedMessages, types: TablePlan | None = None
) -> Iterator[tuple[Changes | None, MessageBlock, bool]]:
    """Return the changes of each block, and whether they are of documents.

    types: the table by whose types the messages were read, where that is not `table`.
    """
    plan = work.plan
    work.faults.extend(values.faults)
    for block, documents in _split_blocks(work, table, values, types or table):
        change, wrong, other = extract_changes(block, unwrap_settings(plan, keep_before=_needs_before_image(table)))
        if change is not None and plan.events.placeholder != PLACEHOLDER:
            change = attrs.evolve(change, row=_use_known_placeholder(change.row, plan.events.placeholder))
        work.faults.extend(wrong)
        work.metrics += TaskMetrics(ignored=other)
        if change is not None and not is_envelope(block.fields.type) and _needs_operations(plan, table):
            change, unnamed = read_operations(change, plan.op_field)
            work.faults.extend(unnamed)
            change = None if change is None else _judge_order(work, change)
        yield change, block, documents


def _judge_order(work: MessageConversion, change: Changes) -> Changes:
    """Return flattened changes with what their connector's dates prove; note if they do not tell where they stand."""
    connector = find_connector(change, work.run.connector, work.plan.events.add_fields_prefix)
    work.metrics += TaskMetrics(unplaced=find_unplaced(change, connector))
    return judge_dates(change, connector)


def _use_known_placeholder(row: pa.StructArray, word: str) -> pa.StructArray:
    columns = [use_known_placeholder(column, word) for column in children(row)]
    gone = row.is_null() if row.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(row.type), mask=gone) if columns else row


def _split_blocks(
    work: MessageConversion, table: TablePlan | None, values: DecodedMessages, types: TablePlan | None
) -> Iterator[tuple[MessageBlock, bool]]:
    """Return blocks whose images are rows of one shape, and whether they are of documents."""
    patches = work.plan.upserts if table is None else table.takes_patches
    upsert = work.plan.upserts if table is None else table.upsert
    known = frozenset[str]() if table is None else _find_row_columns(table, work.plan)
    for block in values.blocks:
        whole = unwrap_cloud_events(block) if is_cloud_event(block) else block
        if not holds_documents(whole.fields.type):
            plain, wrong = expand_partial_updates(block, known, upsert=upsert, patches=patches)
            work.faults.extend(wrong)
            yield from ((part, False) for part in split_images(plain))
            continue
        expected = find_routed_types(work.plan) if types is None else find_expected_types(types, work.plan)
        blocks, wrong = expand_documents(whole, work.plan.events.documents_as, expected, patches=patches)
        work.faults.extend(wrong)
        yield from ((part, True) for part in blocks)


def _find_row_columns(table: TablePlan, plan: BatchPlan) -> frozenset[str]:
    """Return the columns of a table that are of the source's rows: not those that tell of the events."""
    added = unwrap_settings(plan, keep_before=True).added_names
    return frozenset(table.layout.columns.names) - {DELETED_COLUMN, *added}


def _needs_operations(plan: BatchPlan, table: TablePlan | None) -> bool:
    """Tell whether operations matter: not for a table that takes every event, unless a field for them was named."""
    upserts = plan.upserts if table is None else table.upsert
    return upserts or plan.op_field != DEFAULT_OP_FIELD


def _find_tombstone_tables(plan: BatchPlan, table: TablePlan | None) -> list[TablePlan]:
    """Return the tables in which a record without value deletes its key; it names no table itself."""
    tables = [] if table is None else [table]
    if plan.routing is not None:
        known = plan.routing.known
        tables = [plan.tables[known[name]] for name in plan.routing.whole if name in known]
    return [one for one in tables if one.keyed and one.tombstones == "delete"]


def _convert_routed(
    work: MessageConversion,
    change: Changes,
    block: MessageBlock,
    routes: FieldRoutes,
    waiting: frozenset[str | None],
    *,
    documents: bool,
) -> None:
    routed, faults, ignored = route_changes(change, block, work.run.topic, work.plan, routes)
    work.faults.extend(faults)
    work.metrics += TaskMetrics(ignored=ignored)
    for group in gather_alike(routed, work.plan, routes):
        table = _find_known(work.plan, group[0].table, routes)
        if table is None:
            _take_group(work, [one for one in group if one.table not in waiting], routes, documents=documents)
        elif is_read_alike(slice_changes(group[0].ordered, group[0].start, group[-1].stop), table, work.plan):
            _take_group(work, group, routes, documents=documents)
        else:
            _take_again(work, group, routes, table)


def _find_known(plan: BatchPlan, name: str, routes: FieldRoutes) -> TablePlan | None:
    index = routes.find_table(name)
    return None if index is None else plan.tables[index]


def _take_again(work: MessageConversion, group: Sequence[RoutedChanges], routes: FieldRoutes, table: TablePlan) -> None:
    """Take the changes of a group, read by its tables' types: those of its first one are those of all."""
    rows, owners = sort_rows(group)
    for change, _, documents in _read_changes(work, None, work.read_values(table, rows), table):
        routed = [] if change is None else route_again(change, group, rows, owners)
        for part in gather_alike(routed, work.plan, routes):
            _take_group(work, part, routes, documents=documents)


def _take_group(
    work: MessageConversion, group: Sequence[RoutedChanges], routes: FieldRoutes, *, documents: bool
) -> None:
    """Take the rows of tables that convert them alike at once; then what has to be looked at table by table."""
    for one in _convert_group(work, group, routes, documents=documents) if len(group) > 1 else group:
        if one.table in routes.refused:
            work.faults.extend(RecordError(int(row), "TASK_PUT", routes.refused[one.table]) for row in one.change.rows)
        else:
            table = _find_known(work.plan, one.table, routes)
            _convert_changes(work, one.change, table, one.table, documents=documents)


def _convert_group(
    work: MessageConversion, group: Sequence[RoutedChanges], routes: FieldRoutes, *, documents: bool
) -> Iterator[RoutedChanges]:
    """Take the rows of a group; return what cannot be told of all tables by one of them: truncates, needs, faults."""
    plan, run, tables = work.plan, work.run, [work.plan.tables[routes.known[one.table]] for one in group]
    first, start = tables[0], group[0].start
    change = slice_changes(group[0].ordered, start, group[-1].stop)
    rest, unfit = (None, []) if (change.op == OP_TRUNCATE).any() else fit_columns(change, first, plan)
    keys = work.keys(first, documents=documents)
    if rest is None or unfit or find_schema_change(run.topic, rest, keys, first, plan) is not None:
        yield from group
        return
    converted = convert_rows(run, rest, keys, first, plan)
    faults = converted.faults
    if faults and converted.nulled:
        yield from group
        return
    if converted.nulled:
        work.metrics += TaskMetrics(nulled=converted.nulled)
    faulty = np.isin(rest.rows, [fault.row for fault in faults]) if faults else None
    drifts = not plan.evolve and any(find_unknown_fields(rest, first, plan))
    for one, table in zip(group, tables, strict=True):
        own = slice(one.start - start, one.stop - start)
        if faulty is not None and faulty[own].any():
            yield one
            continue
        rows = ConvertedRows(converted.part.slice(own.start, own.stop - own.start), [])
        mine = slice_changes(rest, own.start, own.stop)
        work.take(complete_rows(run, mine, rows, table, plan), table)
        if drifts:
            work.count_unknown(mine, table)


def _convert_changes(
    work: MessageConversion, change: Changes, table: TablePlan | None, name: str | None, *, documents: bool
) -> None:
    """Take changes of one table: as rows, as a need, or as faults."""
    plan, run = work.plan, work.run
    if plan.case_insensitive and table is not None:
        parts = split_spellings(change, table.layout.columns.names)
        if len(parts) > 1:
            for part in parts:
                _convert_changes(work, part, table, name, documents=documents)
            return
    work.truncates.extend(read_truncates(run, change, table))
    work.faults.extend(refuse_truncates(change, table))
    truncated = drop_truncated(run, change, table)
    work.metrics += TaskMetrics(untold=truncated.untold)
    rest = truncated.left
    if rest is None:
        return
    rest, unfit = fit_columns(rest, table, plan)
    work.faults.extend(unfit)
    if rest is None:
        return
    keys = work.keys(table, documents=documents)
    if plan.case_insensitive and table is None and keys is not None:
        keys = keys.match_case(rest.row.type.names)
    need = find_schema_change(run.topic, rest, keys, table, plan)
    if table is None and keys is not None and keys.has_only_faults(rest.rows):
        # Nothing here could become a row, so it is no reason for a table.
        work.faults.extend(keys.faults_of(rest.rows))
    elif need is not None:
        work.needs.append(need if name is None else attrs.evolve(need, table=name))
    elif table is not None:
        ready = build_rows(run, rest, keys, table, plan, truncated.before)
        work.take(ready, table)
        if not plan.evolve:
            work.count_unknown(rest, table)


def _delete_rows_before(work: MessageConversion, block: MessageBlock, table: TablePlan | None) -> None:
    """Take the rows out of tables that updates of a block gave another key, or another table; an update that is a dead
    letter, or tells no row before it that could be one of the table, takes none out.
    """
    plan = work.plan
    before = find_rows_before(block, () if table is None else table.layout.keys)
    deletes = None if before is None else extract_changes(before, unwrap_settings(plan, keep_before=True))[0]
    if before is None or deletes is None:
        return
    routed: list[tuple[TablePlan | None, Changes]] = [(table, deletes)]
    if plan.routing is not None:
        known = plan.routing.known
        split, _, _ = route_changes(deletes, before, work.run.topic, plan, plan.routing)
        routed = [(plan.tables[known[one.table]], one.change) for one in split if one.table in known]
    dead = np.asarray(sorted({fault.row for fault in work.faults}), np.int64)
    leaving = [(target, own) for target, own in routed if target is not None and leaves_keys(target)]
    for target, own_deletes in [(one, own) for one, some in leaving for own in _read_as(work, some, one)]:
        change = fit_columns(own_deletes, target, plan)[0]
        if change is None:
            continue
        part = build_rows(work.run, change, None, target, plan).part
        part = part.take(np.flatnonzero(~np.isin(part.order.offset, work.run.offset[dead])))
        own = [rows for rows, index in zip(work.parts, work.tables, strict=True) if index == target.index]
        work.add_rows(drop_rows_that_stay(part, own, target.layout.keys), target)


def _read_as(work: MessageConversion, deletes: Changes, table: TablePlan) -> Iterator[Changes]:
    """Return deletes of rows before updates as the table that had these reads them."""
    if work.plan.routing is None or is_read_alike(deletes, table, work.plan):
        yield deletes
        return
    for block, _ in _split_blocks(work, None, work.read_values(table, np.sort(deletes.rows)), table):
        before = find_rows_before(block)
        change = None if before is None else extract_changes(before, unwrap_settings(work.plan, keep_before=True))[0]
        if change is not None:
            yield change


def _needs_before_image(table: TablePlan | None) -> bool:
    return table is None or not table.upsert or table.keep_deletes or table.keys_from == "value"


def keep_first_per_row(faults: Iterable[RecordError]) -> Iterator[RecordError]:
    """Yield one fault of each record, the first: a record is one dead letter."""
    rows: set[int] = set()
    for fault in faults:
        if fault.row not in rows:
            rows.add(fault.row)
            yield fault
