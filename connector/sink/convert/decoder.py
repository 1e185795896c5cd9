"""bytes -> rows of a table: decode, unwrap, convert, a column at a time. Runs on executors; no I/O but for schemas.

A record that cannot be used leaves as a fault with its place and reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.types.conversion import schemaless_type
from connector.iceberg.types.schema_evolution import contains, evolve
from connector.kafka.apicurio_registry import apicurio_registry_for
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.schema_registry import schema_registry_for
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.settings import EventSettings, RegistrySettings
from connector.settings.converters.apicurio import ApicurioSettings
from connector.sink.convert import icebergevents
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.documents import expand_documents, name_document_keys
from connector.sink.convert.event_fields import DEFAULT_OP_FIELD, read_operations
from connector.sink.convert.event_shapes import drop_absent_fields, drop_excluded, narrow_to_table, set_variant_types
from connector.sink.convert.failing_records import isolate_failures
from connector.sink.convert.field_matching import find_case_renames, match_case
from connector.sink.convert.header_ids import frame_by_headers
from connector.sink.convert.outbox import Decode, build_outbox_rows, find_aggregate_type
from connector.sink.convert.record_keys import RecordKeys, align_record_keys, key_type
from connector.sink.convert.routing import route_changes
from connector.sink.convert.row_builder import build_rows, build_tombstones, drop_committed, read_dedup_values, to_int64
from connector.sink.convert.transaction_metadata import check_transaction_metadata
from connector.sink.convert.type_changes import follow_type_changes
from connector.sink.convert.type_mismatch import decode_mismatches
from connector.sink.convert.variant_documents import VariantColumns, encode_documents, mark_documents
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import VALID_FROM, BatchPlan, FieldRoutes, SchemaChange, TablePlan
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncate_scope import REFUSED_REASON, TruncateScope
from connector.sink.model.truncates import OP_TRUNCATE, ChangeTimes, Truncate, is_repeated
from serde.arrays import children
from serde.connect.text_columns import DURATION_CONNECTORS, DURATION_TYPES
from serde.events.changes import DELETED_COLUMN, Changes, UnwrapSettings, extract_changes, filter_changes, split_images
from serde.events.documents import ID_COLUMN, holds_documents
from serde.events.event_kind import TRANSACTION_METADATA_TYPE, is_envelope
from serde.events.source_positions import FIRST_NUMBER, NO_VALUE, strip_log_name
from serde.events.unavailable_value import PLACEHOLDER, use_known_placeholder
from serde.faults import RecordError
from serde.formats import FORMATS
from serde.messages import DecodedMessages, MessageBlock
from serde.wire_format import Deserializer, FetchSchema, ReadOptions, WireFormat

__all__ = ["ConsumerRecords", "DecodedRecords", "converters", "decode", "transaction_converter"]

PLAIN_FORMATS = frozenset({"string", "bytes"})
"""Formats whose messages are the values themselves."""

_TRANSACTION_FIELDS = frozenset({"op", "transaction.id", "source.db", "source.schema", "source.table"})


@attrs.frozen(eq=False)
class Converters:
    """How this connector reads keys and values."""

    key: Deserializer
    value: Deserializer


@lru_cache(maxsize=8)
def _build_converters(events: EventSettings, wanted: frozenset[str]) -> Converters:
    key, value = FORMATS[events.key_format], FORMATS[events.value_format]
    texts = (events.temporal_as_text, events.decimal_as_text)
    return Converters(
        key.deserializer(ReadOptions(None, _key_fetcher(events), *texts, _id_bytes(events.key_apicurio))),
        value.deserializer(ReadOptions(wanted, _value_fetcher(events), *texts, _id_bytes(events.value_apicurio))),
    )


def _key_fetcher(events: EventSettings) -> FetchSchema | None:
    return _schema_fetcher(FORMATS[events.key_format], events.key_registry, events.key_apicurio)


def _value_fetcher(events: EventSettings) -> FetchSchema | None:
    return _schema_fetcher(FORMATS[events.value_format], events.value_registry, events.value_apicurio)


def _id_bytes(settings: ApicurioSettings | None) -> int:
    return ReadOptions().id_bytes if settings is None else settings.id_bytes


def _schema_fetcher(
    wire_format: WireFormat, settings: RegistrySettings | None, apicurio: ApicurioSettings | None
) -> FetchSchema | None:
    if apicurio is not None:
        return apicurio_registry_for(apicurio).fetch_schema
    if settings is None or wire_format.registry_type is None:
        return None
    return partial(schema_registry_for(settings).fetch_schema, schema_type=wire_format.registry_type)


def converters(plan: BatchPlan) -> Converters:
    """Return the converters of a connector; they, and what they know of schemas, live as long as the process."""
    paths = plan.routing.rule.paths if plan.routing is not None else frozenset[str]()
    return _build_converters(plan.events, _unwrap_settings(plan, keep_before=True).wanted | paths)


def transaction_converter(plan: BatchPlan) -> Deserializer:
    """Return the converter of values for who wants to know the transactions of events, and nothing else."""
    return _build_converters(plan.events, _TRANSACTION_FIELDS).value


def _unwrap_settings(plan: BatchPlan, *, keep_before: bool) -> UnwrapSettings:
    return UnwrapSettings(plan.events.add_fields, plan.events.add_fields_prefix, plan.op_field, keep_before)


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
    reading, run = converters(plan), frame_by_headers(run, plan.events)
    aggregate = find_aggregate_type(run.topic, plan.events.outbox_topics)
    if aggregate is not None and plan.routing is None and (table is None or not table.upsert):
        return _decode_outbox(run, aggregate, table, plan)
    messages, documents = run.value, frozenset[str]()
    if variants := VariantColumns.of(plan, table):
        messages, documents = encode_documents(messages, variants)
    values = reading.value.decode(messages, "VALUE_CONVERTER", known, _text_columns(run, table))
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


def _text_columns(run: ConsumerRecords, table: TablePlan | None) -> frozenset[str]:
    """Return the columns that the table has as text, and the types that are text for this connector."""
    types = DURATION_TYPES if run.connector in DURATION_CONNECTORS else frozenset[str]()
    return types if table is None else types | table.layout.text_columns


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
    reading, events = converters(plan), plan.events
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
            texts = _text_columns(self.run, table if place is not None else None)
            decoded = self._reading.key.decode(self.run.key, "KEY_CONVERTER", reading, texts)
            self._keys[place] = align_record_keys(decoded, len(self.run.offset), kind)
        named = documents if table is None else table.layout.keys == (ID_COLUMN,)
        return name_document_keys(self._keys[place]) if named else self._keys[place]

    def part(self, part: ChangeBatch, table: TablePlan) -> None:
        """Take rows of a table."""
        if len(part):
            self.parts.append(part)
            self.tables.append(table.index)


def _convert_values(work: _Decoding, table: TablePlan | None, values: DecodedMessages) -> DecodedRecords:
    plan, run = work.plan, work.run
    work.faults.extend(values.faults)
    for block, documents in _split_blocks(work, table, values):
        made, wrong, other = extract_changes(block, _unwrap_settings(plan, keep_before=_needs_before_image(table)))
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
    return DecodedRecords(
        tuple(work.parts),
        tuple(work.needs),
        tuple(_keep_first_per_row(work.faults)),
        tuple(work.truncates),
        tuple(work.tables),
        tuple(work.seen),
        work.metrics + TaskMetrics(tombstones=len(values.tombstones)),
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
        blocks, wrong = expand_documents(whole, work.plan.events.documents_as, expected)
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
    work.truncates.extend(_read_truncates(run, made, table))
    work.faults.extend(_refuse_truncates(made, table))
    change, untold = _drop_truncated(run, made, table)
    work.metrics += TaskMetrics(untold=untold)
    if change is None:
        return
    if plan.case_insensitive and table is not None:
        change = match_case(change, table.layout.columns.names)
    if table is not None and plan.evolve:
        change = follow_type_changes(change, table.layout, plan.events.type_changes)
    keys = work.keys(table, documents=documents)
    if plan.case_insensitive and table is not None and keys is not None:
        wanted = find_case_renames(keys.columns, (*table.layout.keys, *table.layout.key_columns))
        keys = attrs.evolve(keys, columns={wanted.get(name, name): column for name, column in keys.columns.items()})
    need = _find_schema_change(run.topic, change, keys, table, plan)
    if table is None and keys is not None and keys.has_only_faults(change.rows):
        # Nothing here could become a row, so it is no reason for a table.
        work.faults.extend(keys.faults_of(change.rows))
    elif need is not None:
        work.needs.append(need if name is None else attrs.evolve(need, table=name))
    elif table is not None:
        ready = build_rows(run, change, keys, table, plan)
        work.part(ready.part, table)
        work.faults.extend(ready.faults)
        work.metrics += ready.metrics
        if ready.seen.marks or ready.seen.after_delete >= 0:
            work.seen.append(ready.seen)
        if not plan.evolve:
            unknown = frozenset((table.index, field) for field in _find_unknown_fields(change, table, plan))
            work.metrics += TaskMetrics(drift=unknown)


def _find_unknown_fields(change: Changes, table: TablePlan, plan: BatchPlan) -> Iterator[str]:
    """Return the fields of events that the table does not have; what unwrapping added is not theirs."""
    known, prefix = set(table.layout.columns.names), plan.events.add_fields_prefix
    for field in change.row.type:
        ours = field.name == DELETED_COLUMN or (bool(prefix) and field.name.startswith(prefix))
        if field.name not in known and not ours and field.name not in plan.excluded_columns:
            yield field.name


def _needs_before_image(table: TablePlan | None) -> bool:
    return table is None or not table.upsert or table.keep_deletes or table.keys_from == "value"


def _read_truncates(run: ConsumerRecords, change: Changes, table: TablePlan | None) -> Iterator[Truncate]:
    """Return the truncates among changes, but those that a replay or their source brings again."""
    for index in np.flatnonzero(change.op == OP_TRUNCATE).tolist():
        offset = int(run.offset[change.rows[index]])
        if table is None or offset >= table.committed.get((run.topic, run.partition), 0):
            ts_ns, place = int(to_int64(change.ts_ns)[index]), change.place[index]
            known = () if place[FIRST_NUMBER] == NO_VALUE else tuple(place.tolist())
            total_order = int(to_int64(change.total_order)[index])
            source, number = strip_log_name(change.origin[index].as_py()), -1 if table is None else table.index
            found = Truncate(run.topic, run.partition, offset, ts_ns, known, total_order, source, number)
            if table is not None and source in table.cuts.refused:
                continue
            if table is None or not is_repeated(found, table.find_last_truncate(source)):
                yield found


def _refuse_truncates(change: Changes, table: TablePlan | None) -> Iterator[RecordError]:
    """Return the truncates that empty nothing, as nothing tells what."""
    if table is None or not table.cuts.refused:
        return
    for index in np.flatnonzero(change.op == OP_TRUNCATE).tolist():
        if strip_log_name(change.origin[index].as_py()) in table.cuts.refused:
            yield RecordError(int(change.rows[index]), "TASK_PUT", REFUSED_REASON.format(table=table.layout.name))


def _drop_truncated(run: ConsumerRecords, change: Changes, table: TablePlan | None) -> tuple[Changes | None, int]:
    """Leave out truncates themselves, and what came before those that emptied the table; count what is not known."""
    keep, untold = change.op != OP_TRUNCATE, 0
    if table is not None and table.cuts != TruncateScope():
        moments = ChangeTimes(to_int64(change.ts_ns), change.op, change.deleted, change.place)
        names = [strip_log_name(name) for name in change.origin.dictionary.to_pylist()]
        cuts = [] if table.cut is None else [(table.cut, np.ones(len(names), np.bool_))]
        for source, (cut, _) in table.cuts.of_sources.items():
            cuts.append((cut, np.array([name == source for name in names], np.bool_)))
        for cut, named in cuts:
            own = named[np.asarray(change.origin.indices)]
            later, unknown = cut.after((run.topic, run.partition), run.offset[change.rows], moments)
            untold += int((keep & own & unknown).sum())
            keep &= later | ~own
    if keep.all():
        return change, untold
    return (filter_changes(change, keep) if keep.any() else None), untold


def _keep_first_per_row(faults: Iterable[RecordError]) -> Iterator[RecordError]:
    seen: set[int] = set()
    for fault in faults:
        if fault.row not in seen:
            seen.add(fault.row)
            yield fault


def _find_schema_change(
    topic: str, change: Changes, keys: RecordKeys | None, table: TablePlan | None, plan: BatchPlan
) -> SchemaChange | None:
    shape = drop_excluded(change.row.type, plan.excluded_columns)
    loose = frozenset[str]() if table is None else _find_relaxed_columns(change, table, plan)
    if table is not None and not loose and contains(table.layout.columns, shape):
        return None
    if plan.routing is not None:
        shape = drop_absent_fields(shape, change)
    if plan.variants:
        shape = set_variant_types(shape, change.documents, table)
    if table is not None:
        columns = table.layout.columns
        if not change.optional:
            shape = narrow_to_table(change.row, shape, columns)
        if not loose and evolve(columns, shape, add=plan.evolve).equals(columns):
            return None
    key = keys.type if keys is not None and len(keys.columns) else None
    dated = read_dedup_values(change, plan.dedup_column).null_count == 0
    return SchemaChange(topic, shape, key, change.optional, dated=dated, relaxed=loose)


def _find_relaxed_columns(change: Changes, table: TablePlan, plan: BatchPlan) -> frozenset[str]:
    """Return columns that the table requires and that the source, by its schema, does not any more: rows lack them.

    Identifier fields stay required, as Iceberg wants it; so do keys. Without a schema a lacking value proves nothing.
    """
    required = table.layout.required if plan.evolve and change.optional else ()
    written = np.asarray(change.row.is_valid()) & ~change.deleted
    if not required or not written.any():
        return frozenset()
    columns = dict(zip(change.row.type.names, children(change.row), strict=True))
    absent = {name for name in required if name not in columns and name not in (VALID_FROM, DELETED_COLUMN)}
    nulls = {
        name
        for name in required
        if name in columns and change.optional.get(name) and columns[name].null_count
        if (np.asarray(columns[name].is_null()) & written).any()
    }
    return frozenset(absent | nulls)
