"""Consumed records -> decoded messages -> rows of tables (`messages`). On executors; no I/O but for schemas.

A record that cannot be used leaves as a fault with its place and reason; the others continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate

import attrs
import numpy as np

from connector.iceberg.types.values.conversion import schemaless_type
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert.columns.expected_types import (
    expect_cells,
    find_expected_types,
    find_routed_types,
    find_text_columns,
    find_value_texts,
)
from connector.sink.convert.columns.type_mismatch import decode_mismatches
from connector.sink.convert.converters import find_converters, transaction_converter
from connector.sink.convert.decoded_records import DecodedRecords, keep_first_per_row
from connector.sink.convert.events import icebergevents
from connector.sink.convert.events.outbox import OutboxFormat, build_outbox_rows, find_aggregate_type
from connector.sink.convert.events.outbox_values import Reading
from connector.sink.convert.events.transaction_metadata import check_transaction_metadata
from connector.sink.convert.events.variant_documents import VariantColumns, encode_documents, mark_documents
from connector.sink.convert.failing_records import CONTENT_ERRORS, isolate_failures
from connector.sink.convert.header_ids import frame_by_headers
from connector.sink.convert.joint_runs import join_runs, slice_keys, slice_messages
from connector.sink.convert.messages.conversion_state import MessageConversion
from connector.sink.convert.messages.message_conversion import convert_messages
from connector.sink.convert.messages.second_reading import place_rows
from connector.sink.convert.record_keys import RecordKeys, align_record_keys, key_type, reject_base64_keys
from connector.sink.convert.row_builder import drop_committed
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.arrays import Ints
from serde.events.kinds.event_kind import TRANSACTION_METADATA_TYPE
from serde.faults import RecordError
from serde.formats import FORMATS
from serde.messages import DecodedMessages
from serde.plain import BYTES, STRING
from serde.wire_format import Deserializer

PLAIN_FORMATS = frozenset({STRING.name, BYTES.name})
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
        converter, value = transaction_converter(plan), frame_by_headers(run, plan.events).value
        return check_transaction_metadata(converter.decode(value, "VALUE_CONVERTER", TRANSACTION_METADATA_TYPE))
    if run.topic in plan.refused:
        return DecodedRecords(
            faults=tuple(RecordError(row, "TASK_PUT", plan.refused[run.topic]) for row in range(len(run.offset)))
        )
    if len(run.broken):
        return _decode_readable(run, plan)
    index = plan.routes.get(run.topic)
    table = None if index is None else plan.tables[index]
    if plan.raw_ms is not None:
        return _decode_as_text(run, table, plan)
    run = frame_by_headers(run, plan.events)
    aggregate = find_aggregate_type(run.topic, plan.events.outbox_topics)
    if aggregate is not None and plan.routing is None and (table is None or not table.upsert):
        return _decode_outbox(run, aggregate, table, plan)
    values = _read_values(run, table, plan)
    read_keys = partial(_read_keys, run, plan, values)
    work = MessageConversion(run, plan, read_keys, partial(_read_some, run, plan))
    return convert_messages(work, table, values)


def decode_runs(runs: Sequence[ConsumerRecords], plan: BatchPlan) -> list[DecodedRecords]:
    """Return what `decode` makes of each run; messages of several (`joint_runs.gather_small`) are read at once."""
    if len(runs) > 1 and all(_is_plain(run, plan) for run in runs):
        with suppress(*CONTENT_ERRORS):
            return _decode_jointly(runs, plan)
    return [decode(run, plan) for run in runs]


def _is_plain(run: ConsumerRecords, plan: BatchPlan) -> bool:
    """Tell whether keys and values are all that decoding the records takes."""
    special = run.topic == plan.transaction_topic or run.topic in plan.refused or plan.raw_ms is not None
    outbox = find_aggregate_type(run.topic, plan.events.outbox_topics) is not None
    return not (special or outbox or run.headers or len(run.broken))


def _decode_jointly(runs: Sequence[ConsumerRecords], plan: BatchPlan) -> list[DecodedRecords]:
    whole, index = join_runs(runs), plan.routes.get(runs[0].topic)
    table = None if index is None else plan.tables[index]
    values, known = _read_values(whole, table, plan), dict[tuple[object, ...], RecordKeys]()
    decoded = []
    for run, stop in zip(runs, accumulate(len(run.offset) for run in runs), strict=True):
        start = stop - len(run.offset)

        def read_keys(table: TablePlan | None, start: int = start, stop: int = stop) -> RecordKeys:
            at = (key_type(table), find_text_columns(whole, table, plan))
            if at not in known:
                known[at] = _read_keys(whole, plan, values, table)
            return slice_keys(known[at], start, stop)

        work = MessageConversion(run, plan, read_keys, partial(_read_some, run, plan))
        made = convert_messages(work, table, slice_messages(values, start, stop))
        decoded.append(made.count(len(run.offset), run.size_bytes))
    return decoded


def _read_keys(run: ConsumerRecords, plan: BatchPlan, values: DecodedMessages, table: TablePlan | None) -> RecordKeys:
    kind = key_type(table)
    expected = None if kind is None else expect_cells(schemaless_type(kind), run.key)
    texts = find_text_columns(run, table, plan)
    texts = texts if table is not None else texts | find_value_texts(values)
    decoded = find_converters(plan).key.decode(run.key, "KEY_CONVERTER", expected, texts)
    if plan.events.key_format not in PLAIN_FORMATS:
        decoded = reject_base64_keys(decoded, kind, any_case=plan.case_insensitive)
    return align_record_keys(decoded, len(run.offset), kind)


def _read_values(
    run: ConsumerRecords, table: TablePlan | None, plan: BatchPlan, *, again: bool = False
) -> DecodedMessages:
    reading, known = find_converters(plan), None if table is None else find_expected_types(table, plan)
    messages, documents = run.value, frozenset[str]()
    if variants := VariantColumns.of(plan, table, every=again):
        messages, documents = encode_documents(messages, variants)
    expected = None if known is None or table is None else expect_cells(known, messages, upsert=table.upsert)
    columns = find_routed_types(plan) if table is None else expected
    values = reading.value.decode(messages, "VALUE_CONVERTER", columns, find_text_columns(run, table, plan))
    values = mark_documents(values, documents)
    if expected is not None and not plan.evolve:
        values = decode_mismatches(values, messages, reading.value, expected, any_case=plan.case_insensitive)
    return values


def _read_some(run: ConsumerRecords, plan: BatchPlan, table: TablePlan | None, rows: Ints) -> DecodedMessages:
    """Read some of the values, ascending rows, by the types of a table."""
    return place_rows(_read_values(run.only(rows), table, plan, again=True), rows)


def _decode_readable(run: ConsumerRecords, plan: BatchPlan) -> DecodedRecords:
    """Decode the records whose headers can be read; the others may be moves of a key, and nobody can tell."""
    good = np.setdiff1d(np.arange(len(run.offset)), run.broken)
    decoded = _decode(run.only(good), plan) if len(good) else DecodedRecords()
    faults = [RecordError(int(row), "TASK_PUT", "the record's headers do not end where it does") for row in run.broken]
    faults += [attrs.evolve(fault, row=int(good[fault.row])) for fault in decoded.faults]
    return attrs.evolve(decoded, faults=tuple(faults))


def _decode_as_text(run: ConsumerRecords, table: TablePlan | None, plan: BatchPlan) -> DecodedRecords:
    if table is None:
        return DecodedRecords(needs=(icebergevents.request_table(run.topic),))
    part, faults = icebergevents.build_rows(run, table, plan)
    part = drop_committed(run, part, table)
    return DecodedRecords(
        (part,) if len(part) else (), faults=tuple(faults), tables=(table.index,) if len(part) else ()
    )


def _decode_outbox(run: ConsumerRecords, aggregate: str, table: TablePlan | None, plan: BatchPlan) -> DecodedRecords:
    reading, events = find_converters(plan), plan.events
    form = OutboxFormat(
        _read_singles(reading.key, events.key_format),
        _read_singles(reading.value, events.value_format),
        events.value_format == BYTES.name,
    )
    outbox = build_outbox_rows(run, aggregate, table, plan, form)
    parts = () if outbox.part is None or not len(outbox.part) else (outbox.part,)
    tables = () if table is None or not parts else (table.index,)
    needs = () if outbox.need is None else (outbox.need,)
    return DecodedRecords(parts, needs, tuple(keep_first_per_row(outbox.faults)), tables=tables)


def _read_singles(converter: Deserializer, name: str) -> Reading | None:
    """Read messages of a format as keys are read: a single value is a field of the name that is expected."""
    if name in PLAIN_FORMATS:
        return None
    every = FORMATS[name].needs_registry
    return Reading(lambda data, _stage, expected: converter.decode(data, "KEY_CONVERTER", expected), every=every)
