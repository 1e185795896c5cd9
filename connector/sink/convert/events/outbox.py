"""Records of Debezium's outbox router -> rows of one table per aggregate type: every event, appended. No I/O.

The columns are those of the outbox table that the router documents: `id` (a header), `aggregatetype` (the end of the
topic), `aggregateid` (the record's key), `type` (a header, where the router is told to send it), `payload` (the value
as text, an expanded one as its JSON, or bytes), and what the router places into the value beside the payload.
Source: Debezium's documentation, "Outbox Event Router".
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, is_storable
from connector.iceberg.types.schemas.schema_evolution import evolve
from connector.iceberg.types.values.conversion import convert
from connector.iceberg.types.values.variants import to_json_text
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings.configdef.regexps import compile_java
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from connector.sink.model.plan import BatchPlan, SchemaChange, TablePlan
from serde.arrays import Mask, children
from serde.events.source_positions import NO_VALUE, unknown_positions
from serde.faults import RecordError, Stage
from serde.messages import DecodedMessages, MessageBlock

ID, AGGREGATE_TYPE, AGGREGATE_ID, TYPE, PAYLOAD = "id", "aggregatetype", "aggregateid", "type", "payload"
ID_HEADERS, TYPE_HEADERS = ("id",), ("type", "eventType")
HEADERS = (*ID_HEADERS, *TYPE_HEADERS)
Decode = Callable[[pa.Array, Stage, pa.StructType], DecodedMessages]
"""Reads keys or values, where a single value counts as a field of the given name."""

_FRAMED = rb'^\s*(\{\s*"schema"|")'
_MAYBE_ENVELOPE = rb'^\s*(\{\s*"schema"|"|\{.*"payload")'


def find_aggregate_type(topic: str, pattern: str | None) -> str | None:
    """Return the aggregate type that a topic of the router is for: its pattern's first group, else the topic itself."""
    found = None if pattern is None else compile_java(pattern).fullmatch(topic)
    if found is None:
        return None
    return found[1] if found.re.groups and found[1] is not None else topic


@attrs.frozen(eq=False)
class OutboxRows:
    """Rows of the table, or the need of one that has their columns; and records that are no events."""

    part: ChangeBatch | None
    need: SchemaChange | None
    faults: list[RecordError]


def build_outbox_rows(
    run: ConsumerRecords,
    aggregate: str,
    table: TablePlan | None,
    plan: BatchPlan,
    decode_key: Decode | None,
    decode_value: Decode | None,
    *,
    raw: bool = False,
) -> OutboxRows:
    """Make the rows of a run.

    Args:
        run: records of a topic of the router.
        aggregate: their aggregate type.
        table: their table, None where there is none yet.
        plan: the batch's.
        decode_key, decode_value: how keys and values are read that are no plain text; None: all are.
        raw: whether values are bytes, which a payload of bytes takes as they are.
    """
    count = len(run.offset)
    columns, faults = _read_payloads(run.value, decode_value, table, raw=raw)
    keys, bad_keys = _read_texts(run.key, AGGREGATE_ID, "KEY_CONVERTER", decode_key)
    made = {
        ID: _header_text(run, ID_HEADERS),
        AGGREGATE_TYPE: pa.repeat(pa.scalar(aggregate), count),
        AGGREGATE_ID: keys,
        TYPE: _header_text(run, TYPE_HEADERS),
    }
    # What stands beside the payload is closer to the event than a header of the same name.
    made |= {
        n: c if n not in made or c.null_count == 0 else pc.coalesce(c.cast(pa.string()), made[n])
        for n, c in columns.items()
    }
    faults += bad_keys
    if table is None and len({fault.row for fault in faults}) == count:
        # Nothing here could become a row, so it is no reason for a table.
        return OutboxRows(None, None, faults)
    need = _find_need(run.topic, made, table, plan)
    if need is not None or table is None:
        return OutboxRows(None, need, faults)
    return _build_part(run, made, table, plan, faults)


def _find_need(topic: str, made: dict[str, pa.Array], table: TablePlan | None, plan: BatchPlan) -> SchemaChange | None:
    fields = [pa.field(name, column.type) for name, column in made.items() if is_storable(column.type)]
    if plan.variants and (table is None or PAYLOAD not in table.layout.columns.names):
        texts = {PAYLOAD} if pa.types.is_string(made[PAYLOAD].type) else set()
        fields = [field.with_type(VARIANT_ARROW_TYPE) if field.name in texts else field for field in fields]
    shape = pa.struct(fields)
    if table is not None:
        columns = table.layout.columns
        if not plan.evolve or evolve(columns, shape, add=True).equals(columns):
            return None
    return SchemaChange(topic, shape, None, {}, dated=False)


def _build_part(
    run: ConsumerRecords, made: dict[str, pa.Array], table: TablePlan, plan: BatchPlan, faults: list[RecordError]
) -> OutboxRows:
    count, columns = len(run.offset), []
    for field in table.layout.rows:
        column, bad = (
            convert(made[field.name], field.type) if field.name in made else (pa.nulls(count, field.type), None)
        )
        columns.append(column)
        reason = f"column {field.name}: a value does not fit the table's {field.type}"
        wrong = [] if bad is None else np.flatnonzero(bad).tolist()
        faults += [RecordError(row, "TASK_PUT", reason) for row in wrong]
    unknown = np.full(count, NO_VALUE, np.int64)
    rank = np.full(count, plan.ranks[run.topic, run.partition], np.int64)
    op = np.full(count, ord("c"), np.uint8)
    order = ChangeOrder(rank, run.offset, unknown, unknown, unknown_positions(count), op)
    there = np.ones(count, np.bool_)
    part = ChangeBatch(pa.RecordBatch.from_arrays(columns, schema=table.layout.rows), order, ~there, there)
    keep = run.offset >= table.committed.get(run.at, 0)
    keep[[fault.row for fault in faults]] = False
    return OutboxRows(part if keep.all() else part.take(np.flatnonzero(keep)), None, faults)


def _header_text(run: ConsumerRecords, names: tuple[str, ...]) -> pa.Array:
    found = [_to_text(run.headers[name])[0] for name in names if name in run.headers]
    return pc.coalesce(*found) if found else pa.nulls(len(run.offset), pa.string())


def _to_text(data: pa.Array) -> tuple[pa.StringArray, Mask]:
    """Bytes as text, and which are none."""
    try:
        return data.cast(pa.string()), np.zeros(len(data), np.bool_)
    except pa.ArrowInvalid:
        good = [value is None or _is_utf8(value) for value in data.to_pylist()]
        kept = pc.if_else(pa.array(good), data, pa.scalar(None, data.type))
        return kept.cast(pa.string()), ~np.array(good, np.bool_)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _matches(data: pa.Array, pattern: bytes) -> npt.NDArray[np.bool_]:
    found: Mask = np.asarray(pc.match_substring_regex(data, pattern.decode()).fill_null(False))
    return found


def _read_texts(
    data: pa.Array, name: str, stage: Stage, decode: Decode | None
) -> tuple[pa.StringArray, list[RecordError]]:
    """Keys as text: those behind a schema or in quotes are decoded, others are texts as they are."""
    text, bad = _to_text(data)
    rows = np.flatnonzero(_matches(data, _FRAMED)) if decode is not None and not bad.any() else np.zeros(0, np.int64)
    if decode is not None and bad.any():
        rows = np.flatnonzero(np.asarray(data.is_valid()))
    made, faults = _decode_rows(data, rows, name, stage, decode)
    column = made.get(name)
    if column is not None:
        text = pc.coalesce(column.cast(pa.string()), text) if pa.types.is_string(text.type) else text
    read = np.zeros(len(data), np.bool_)
    read[rows] = True
    wrong = np.flatnonzero(bad & ~read).tolist()
    return text, [*faults, *(RecordError(row, stage, "no UTF-8 text") for row in wrong)]


def _read_payloads(
    data: pa.Array, decode: Decode | None, table: TablePlan | None, *, raw: bool
) -> tuple[dict[str, pa.Array], list[RecordError]]:
    """Payloads, and what stands beside them: of bytes where the table says so, of a new one where converter or schema
    do; texts are their UTF-8 then.
    """
    columns = None if table is None else table.layout.columns
    known = columns is not None and PAYLOAD in columns.names
    binary = raw if columns is None or not known else pa.types.is_binary(columns.field(PAYLOAD).type)
    if raw and binary:
        return {PAYLOAD: data.cast(pa.binary())}, []
    made, faults = _read_values(data, decode, keep_bytes=binary or not known)
    return {**made, PAYLOAD: made[PAYLOAD].cast(pa.binary()) if binary else made[PAYLOAD]}, faults


def _read_values(
    data: pa.Array, decode: Decode | None, *, keep_bytes: bool
) -> tuple[dict[str, pa.Array], list[RecordError]]:
    text, bad = _to_text(data)
    if decode is None:
        rows = np.zeros(0, np.int64)
    elif bad.any() or _matches(data, rb"^\x00").any():
        rows = np.flatnonzero(np.asarray(data.is_valid()))
    else:
        rows = np.flatnonzero(_matches(data, _MAYBE_ENVELOPE))
    made, faults = _decode_rows(data, rows, PAYLOAD, "VALUE_CONVERTER", decode, text, keep_bytes=keep_bytes)
    payload = made.pop(PAYLOAD, None)
    read = np.zeros(len(data), np.bool_)
    read[rows] = True
    plain = pc.if_else(pa.array(~read), text, pa.scalar(None, pa.string()))
    whole = plain if payload is None else pc.coalesce(plain.cast(payload.type), payload)
    wrong = np.flatnonzero(bad & ~read).tolist()
    told = [*faults, *(RecordError(row, "VALUE_CONVERTER", "no UTF-8 text") for row in wrong)]
    return {**made, PAYLOAD: whole}, told


def _decode_rows(
    data: pa.Array,
    rows: npt.NDArray[np.int64],
    name: str,
    stage: Stage,
    decode: Decode | None,
    raw: pa.Array | None = None,
    *,
    keep_bytes: bool = False,
) -> tuple[dict[str, pa.Array], list[RecordError]]:
    """Columns over all records of those that have to be decoded; their faults by record."""
    if decode is None or not len(rows):
        return {}, []
    found = decode(data.take(pa.array(rows)), stage, pa.struct([(name, pa.string())]))
    faults = [attrs.evolve(fault, row=int(rows[fault.row]), stage=stage) for fault in found.faults]
    made: dict[str, pa.Array] = {}
    for block in found.blocks:
        places = np.full(len(data), -1, np.int64)
        places[rows[block.rows]] = np.arange(len(block.rows))
        taken = pa.array(places, mask=places < 0)
        own = None if raw is None or block.schema_id else raw.take(pa.array(rows[block.rows]))
        for field, column in _read_block(block, name, own, keep_bytes=keep_bytes).items():
            aligned = column.take(taken)
            before = made.get(field)
            if before is not None and before.type != aligned.type:
                common = (
                    pa.binary() if pa.types.is_binary(before.type) or pa.types.is_binary(aligned.type) else pa.string()
                )
                before, aligned = before.cast(common), aligned.cast(common)
            made[field] = aligned if before is None else pc.coalesce(before, aligned)
    return made, faults


def _read_block(block: MessageBlock, name: str, raw: pa.Array | None, *, keep_bytes: bool) -> dict[str, pa.Array]:
    """The value itself, and what stands beside it; a struct that is no such envelope is one value, as JSON.

    raw: the texts of messages without schema, which are their JSON already.
    """
    columns = dict(zip(block.fields.type.names, children(block.fields), strict=True))
    others = {field: column for field, column in columns.items() if field != name}
    if name in columns and not any(pa.types.is_nested(column.type) for column in others.values()):
        value, is_bytes = columns[name], keep_bytes and pa.types.is_binary(columns[name].type)
        plain = is_bytes or name != PAYLOAD
        return {**others, name: value if plain else to_json_text(value, keep_nulls=bool(block.optional))}
    return {name: to_json_text(block.fields, keep_nulls=bool(block.optional)) if raw is None else raw}
