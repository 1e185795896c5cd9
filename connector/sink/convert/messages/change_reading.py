"""Decoded messages -> changes, block by block: images of one shape, with their operations and order."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pyarrow as pa

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.columns.expected_types import find_expected_types, find_routed_types
from connector.sink.convert.converters import unwrap_settings
from connector.sink.convert.events.documents import expand_documents
from connector.sink.convert.events.event_fields import DEFAULT_OP_FIELD, read_operations
from connector.sink.convert.events.partial_updates import expand_partial_updates
from connector.sink.convert.messages.conversion_state import MessageConversion
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.arrays import children
from serde.events.changes import DELETED_COLUMN, Changes
from serde.events.flattened_order import find_connector, find_unplaced, judge_dates
from serde.events.images.documents import holds_documents
from serde.events.images.envelope_images import split_images
from serde.events.images.unavailable_value import PLACEHOLDER, use_known_placeholder
from serde.events.kinds.cloudevents import is_cloud_event, unwrap_cloud_events
from serde.events.kinds.event_kind import is_envelope
from serde.events.unwrapping import extract_changes
from serde.messages import DecodedMessages, MessageBlock


def read_changes(
    work: MessageConversion, table: TablePlan | None, values: DecodedMessages, types: TablePlan | None = None
) -> Iterator[tuple[Changes | None, MessageBlock, bool]]:
    """Return the changes of each block, and whether they are of documents.

    types: the table by whose types the messages were read, where that is not `table`.
    """
    plan = work.plan
    work.faults.extend(values.faults)
    for block, documents in split_blocks(work, table, values, types or table):
        change, wrong, other = extract_changes(block, unwrap_settings(plan, keep_before=_needs_before_image(table)))
        if change is not None and plan.events.placeholder != PLACEHOLDER:
            change = attrs.evolve(change, row=_use_known_placeholder(change.row, plan.events.placeholder))
        work.faults.extend(wrong)
        work.metrics += TaskMetrics(ignored=other)
        if change is not None and not _is_enveloped(block) and _needs_operations(plan, table):
            change, unnamed = read_operations(change, plan.op_field)
            work.faults.extend(unnamed)
            change = None if change is None else _judge_order(work, change)
        yield change, block, documents


def _is_enveloped(block: MessageBlock) -> bool:
    """Tell whether events say by themselves what they do, and where they stand."""
    return is_envelope(block.fields.type) or is_cloud_event(block)


def _judge_order(work: MessageConversion, change: Changes) -> Changes:
    """Return flattened changes with what their connector's dates prove; note if they do not tell where they stand."""
    connector = find_connector(change, work.run.connector, work.plan.events.add_fields_prefix)
    work.metrics += TaskMetrics(unplaced=find_unplaced(change, connector))
    return judge_dates(change, connector)


def _use_known_placeholder(row: pa.StructArray, word: str) -> pa.StructArray:
    columns = [use_known_placeholder(column, word) for column in children(row)]
    gone = row.is_null() if row.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(row.type), mask=gone) if columns else row


def split_blocks(
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


def _needs_before_image(table: TablePlan | None) -> bool:
    return table is None or not table.upsert or table.keep_deletes or table.keys_from == "value"
