"""bytes -> rows of a table: decode, unwrap, convert, a column at a time. Runs on executors; no I/O but for schemas.

A record that cannot be used leaves as a fault with its place and reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.types.conversion import schemaless_type
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.columns.ambiguous_names import refuse_ambiguous_names
from connector.sink.convert.columns.column_renames import follow_key_renames, follow_renames
from connector.sink.convert.columns.field_matching import match_case
from connector.sink.convert.columns.schema_needs import find_schema_change, find_unknown_fields
from connector.sink.convert.columns.type_changes import follow_type_changes
from connector.sink.convert.columns.type_mismatch import decode_mismatches
from connector.sink.convert.converters import Converters, find_converters, transaction_converter, unwrap_settings
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.events import icebergevents
from connector.sink.convert.events.documents import expand_documents, name_document_keys
from connector.sink.convert.events.event_fields import DEFAULT_OP_FIELD, read_operations
from connector.sink.convert.events.outbox import Decode, build_outbox_rows, find_aggregate_type
from connector.sink.convert.events.transaction_metadata import check_transaction_metadata
from connector.sink.convert.events.truncate_events import drop_truncated, read_truncates, refuse_truncates
from connector.sink.convert.events.variant_documents import VariantColumns, encode_documents, mark_documents
from connector.sink.convert.failing_records import isolate_failures
from connector.sink.convert.header_ids import frame_by_headers
from connector.sink.convert.record_keys import RecordKeys, align_record_keys, key_type
from connector.sink.convert.routing import route_changes
from connector.sink.convert.row_builder import build_rows, build_tombstones, drop_committed
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import BatchPlan, FieldRoutes, SchemaChange, TablePlan
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncates import Truncate
from serde.arrays import children
from serde.connect.text_columns import find_text_types
from serde.events.changes import Changes, extract_changes, split_images
from serde.events.documents import ID_COLUMN, holds_documents
from serde.events.event_kind import TRANSACTION_METADATA_TYPE, is_envelope
from serde.events.unavailable_value import PLACEHOLDER, use_known_placeholder
from serde.faults import RecordError
from serde.messages import DecodedMessages, MessageBlock
from serde.wire_format import Deserializer

__all__ = ["ConsumerRecords", "DecodedRecords", "decode"]

PLAIN_FORMATS = frozenset({"string", "bytes"})
"""Formats whose messages are the values themselves."""


def decode(run: ConsumerRecords, plan: BatchPlan) -> DecodedRecords:
    """Turn a run of records into rows of its table, or of the tables that the records name.

    Returns a need instead of rows for a shape that a table cannot take in yet. No record's content makes it raise.
    Cost: linear, vectorised.
    """
    decoded = isolate_failures(run, partial(_decode, plan=plan))
    return decoded.count(len(run.offset), run.size_bytes)


def _decode(run: ConsumerRecords, plan: BatchPlan) -> DecodedRecords:
    if run.topic == plan.transaction_topic:
        converter = transaction_converter(plan)
        return check_transaction_metadata(converter.decode(run.value, "VALUE_CONVERTER", TRANSACTION_METADATA_TYPE))
    if run.topic in plan.refused:
        return DecodedRecords(
            faults=tuple(RecordError(row, "TASK_PUT", plan.refused[run.topic]) for row in range(len(run.offset)))
        )
    if len(run.broken):
        return _decode_readable(run, plan)
    index = plan.routes.get(run.topic)
    table = None if index is None else plan.tables[index]
    known = None if table is None else _expected_types(table, plan)
    if plan.raw_ms is not None:
        return _decode_as_text(run, table, plan)
    reading, run = find_converters(plan), frame_by_headers(run, plan.events)
    aggregate = find_aggregate_type(run.topic, plan.events.outbox_topics)
    if aggregate is not None and plan.routing is None and (table is None or not table.upsert):
        return _decode_outbox(run, aggregate, table, plan)
    messages, documents = run.value, frozenset[str]()
    if variants := VariantColumns.of(plan, table):
        messages, documents = encode_documents(messages, variants)
    values = reading.value.decode(messages, "VALUE_CONVERTER", known, _text_columns(run, table, plan))
    values = mark_documents(values, documents)
    if known is not None and not plan.evolve:
        values = decode_mismatches(values, messages, reading.value, known)
    return _convert_values(_Decoding(run, plan, reading), table, values)


def _decode_readable(run: ConsumerRecords, plan: BatchPlan) -> DecodedRecords:
    """Decode the records whose headers can be read; the others may be moves of a key, and nobody can tell."""
    good = np.setdiff1d(np.arange(len(run.offset)), run.broken)
    made = _decode(run.only(good), plan) if len(good) else DecodedRecords()
    faults = [RecordError(int(row), "TASK_PUT", "the record's headers do not end where it does") for row in run.broken]
    faults += [attrs.evolve(fault, row=int(good[fault.row])) for fault in made.faults]
    return attrs.evolve(made, faults=tuple(faults))


def _expected_types(table: TablePlan, plan: BatchPlan) -> pa.StructType:
    """Return what messages without schema are read by; a variant takes what there is.

    Where tables follow their events only texts become dates and the like; else numbers do too.
    """
    columns, variants = table.layout.columns, table.layout.variants
    known = [field.with_type(schemaless_type(field.type)) if plan.evolve else field for field in columns]
    return pa.struct([field.with_type(pa.null()) if field.name in variants else field for field in known])


def _text_columns(run: ConsumerRecords, table: TablePlan | None, plan: BatchPlan) -> frozenset[str]:
    """Return the columns that the table has as text, and the types that are text for this connector.

    Instants, which are read as microseconds, keep their digits as text on the way to columns of nanoseconds too.
    """
    types = find_text_types(run.connector, plan.events.temporal_as_text)
    return types if table is None else types | table.layout.text_columns | table.layout.instant_ns_columns


def _decode_as_text(run: ConsumerRecords, table: TablePlan | None, plan: BatchPlan) -> DecodedRecords:
    if table is None:
        return DecodedRecords(needs=(icebergevents.request_table(run.topic),))
    rank = plan.ranks[run.topic, run.partition]
    part, faults = icebergevents.build_rows(run.topic, rank, run.offset, run.key, run.value, table, plan)
    part = drop_committed(run, part, table)
    return DecodedRecords(
        (part,) if len(part) else (), faults=tuple(faults), tables=(table.index,) if len(part) else ()
    )


def _decode_outbox(run: ConsumerRecords, aggregate: str, table: TablePlan | None, plan: BatchPlan) -> DecodedRecords:
    reading, events = find_converters(plan), plan.events
    key = None if events.key_format in PLAIN_FORMATS else reading.key.decode
    value = None if events.value_format in PLAIN_FORMATS else _decode_single(reading.value)
    made = build_outbox_rows(run, aggregate, table, plan, key, value)
    parts = () if made.part is None or not len(made.part) else (made.part,)
    tables = () if table is None or not parts else (table.index,)
    needs = () if made.need is None else (made.need,)
    return DecodedRecords(parts, needs, tuple(_keep_first_per_row(made.faults)), tables=tables)


def _decode_single(converter: Deserializer) -> Decode:
    """Read values as keys are read: a single value is a field of the name that is expected."""
    return lambda data, _stage, expected: converter.decode(data, "KEY_CONVERTER", expected)


class _Decoding:
    """A run on its way: what was made of it so far."""

    def __init__(self, run: ConsumerRecords, plan: BatchPlan, reading: Converters) -> None:
        self.run, self.plan, self._reading = run, plan, reading
        self.parts: list[ChangeBatch] = []
        self.tables: list[int] = []
        self.needs: list[SchemaChange] = []
        self.faults: list[RecordError] = []
        self.truncates: list[Truncate] = []
        self.seen: list[SourceProgress] = []
        self.metrics = TaskMetrics()
        self._keys: dict[int | None, RecordKeys] = {}

    def keys(self, table: TablePlan | None, *, documents: bool = False) -> RecordKeys | None:
        """Return the record keys by the types of a table, decoded once; None where they are not looked at.

        documents: whether they are of documents, where there is no table yet that would tell.
        """
        if not (self.plan.record_keys if table is None else table.keyed):
            return None
        # Events that name their tables share one reading of the keys: the types are those that they have.
        place = None if table is None or self.plan.routing is not None else table.index
        if place not in self._keys:
            kind = key_type(table) if place is not None else None
            reading = None if kind is None else schemaless_type(kind)
            texts = _text_columns(self.run, table if place is not None else None, self.plan)
            decoded = self._reading.key.decode(self.run.key, "KEY_CONVERTER", reading, texts)
            self._keys[place] = align_record_keys(decoded, len(self.run.offset), kind)
        keys = self._keys[place] if table is None else follow_key_renames(self._keys[place], table.renames)
        if self.plan.case_insensitive and table is not None:
            keys = keys.match_case((*table.layout.keys, *table.layout.key_columns))
        named = documents if table is None else table.layout.keys == (ID_COLUMN,)
        return name_document_keys(keys) if named else keys

    def part(self, part: ChangeBatch, table: TablePlan) -> None:
        """Take rows of a table."""
        if len(part):
            self.parts.append(part)
            self.tables.append(table.index)


def _convert_values(work: _Decoding, table: TablePlan | None, values: DecodedMessages) -> DecodedRecords:
    plan, run = work.plan, work.run
    work.faults.extend(values.faults)
    for block, documents in _split_blocks(work, table, values):
        made, wrong, other = extract_changes(block, unwrap_settings(plan, keep_before=_needs_before_image(table)))
        if made is not None and plan.events.placeholder != PLACEHOLDER:
            made = attrs.evolve(made, row=_use_known_placeholder(made.row, plan.events.placeholder))
        work.faults.extend(wrong)
        work.metrics += TaskMetrics(ignored=other)
        if made is not None and not is_envelope(block.fields.type) and _needs_operations(plan, table):
            made, unnamed = read_operations(made, plan.op_field)
            work.faults.extend(unnamed)
        if made is not None and plan.routing is not None:
            _convert_routed(work, made, block, plan.routing, documents=documents)
        elif made is not None:
            _convert_changes(work, made, table, None, documents=documents)
    for target in _find_tombstone_tables(plan, table) if len(values.tombstones) else ():
        keys = work.keys(target)
        if keys is not None:
            part, unkeyed = build_tombstones(run, values.tombstones, keys, target, plan)
            work.part(part, target)
            work.faults.extend(unkeyed)
    unknown = frozenset(name for block in values.blocks for name in block.unknown)
    return DecodedRecords(
        tuple(work.parts),
        tuple(work.needs),
        tuple(_keep_first_per_row(work.faults)),
        tuple(work.truncates),
        tuple(work.tables),
        tuple(work.seen),
        work.metrics + TaskMetrics(tombstones=len(values.tombstones), unknown_types=unknown),
    )


def _use_known_placeholder(row: pa.StructArray, word: str) -> pa.StructArray:
    columns = [use_known_placeholder(column, word) for column in children(row)]
    gone = row.is_null() if row.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(row.type), mask=gone) if columns else row


def _split_blocks(
    work: _Decoding, table: TablePlan | None, values: DecodedMessages
) -> Iterator[tuple[MessageBlock, bool]]:
    """Return blocks whose images are rows of one shape, and whether they are of documents."""
    for whole in values.blocks:
        if not holds_documents(whole.fields.type):
            yield from ((part, False) for part in split_images(whole))
            continue
        expected = None if table is None else _expected_types(table, work.plan)
        patches = work.plan.upserts if table is None else table.takes_patches
        blocks, wrong = expand_documents(whole, work.plan.events.documents_as, expected, patches=patches)
        work.faults.extend(wrong)
        yield from ((part, True) for part in blocks)


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
    work: _Decoding, change: Changes, block: MessageBlock, routes: FieldRoutes, *, documents: bool
) -> None:
    made, faults, ignored = route_changes(change, block, work.run.topic, routes)
    work.faults.extend(faults)
    work.metrics += TaskMetrics(ignored=ignored)
    for one in made:
        if one.table in routes.refused:
            work.faults.extend(RecordError(int(row), "TASK_PUT", routes.refused[one.table]) for row in one.change.rows)
        else:
            index = routes.known.get(one.table)
            table = None if index is None else work.plan.tables[index]
            _convert_changes(work, one.change, table, one.table, documents=documents)


def _convert_changes(
    work: _Decoding, made: Changes, table: TablePlan | None, name: str | None, *, documents: bool
) -> None:
    """Take changes of one table: as rows, as a need, or as faults."""
    plan, run = work.plan, work.run
    work.truncates.extend(read_truncates(run, made, table))
    work.faults.extend(refuse_truncates(made, table))
    change, truncated, untold = drop_truncated(run, made, table)
    work.metrics += TaskMetrics(untold=untold)
    if change is None:
        return
    if table is not None:
        change = follow_renames(change, table.renames, table.layout.columns.names)
    if plan.case_insensitive:
        change, unlike = match_case(change, () if table is None else table.layout.columns.names)
        work.faults.extend(unlike)
        if change is None:
            return
    if table is not None and plan.evolve:
        change = follow_type_changes(change, table.layout, plan.events.type_changes)
    change, ambiguous = refuse_ambiguous_names(change, table, plan)
    work.faults.extend(ambiguous)
    if change is None:
        return
    keys = work.keys(table, documents=documents)
    if plan.case_insensitive and table is None and keys is not None:
        keys = keys.match_case(change.row.type.names)
    need = find_schema_change(run.topic, change, keys, table, plan)
    if table is None and keys is not None and keys.has_only_faults(change.rows):
        # Nothing here could become a row, so it is no reason for a table.
        work.faults.extend(keys.faults_of(change.rows))
    elif need is not None:
        work.needs.append(need if name is None else attrs.evolve(need, table=name))
    elif table is not None:
        ready = build_rows(run, change, keys, table, plan, truncated)
        work.part(ready.part, table)
        work.faults.extend(ready.faults)
        work.metrics += ready.metrics
        if ready.seen.marks or ready.seen.after_delete >= 0:
            work.seen.append(ready.seen)
        if not plan.evolve:
            unknown = frozenset((table.index, field) for field in find_unknown_fields(change, table, plan))
            work.metrics += TaskMetrics(drift=unknown)


def _needs_before_image(table: TablePlan | None) -> bool:
    return table is None or not table.upsert or table.keep_deletes or table.keys_from == "value"


def _keep_first_per_row(faults: Iterable[RecordError]) -> Iterator[RecordError]:
    seen: set[int] = set()
    for fault in faults:
        if fault.row not in seen:
            seen.add(fault.row)
            yield fault
