"""Hard deletes of a batch -> rows of the table of deleted keys (`state.deleted_keys_table`). On executors.

A hard delete leaves no row that a late change could be compared with, so its key and timestamp are kept for a while.
For documents the version is kept in place of the timestamp: the cluster itself forgets the versions of deleted
documents.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.state.deleted_keys_schema import DELETED_KEYS_COLUMNS
from connector.iceberg.types.nested_columns import read_columns
from connector.runtime.topic_partitions import TopicPartition
from connector.sink.model.change_rows import ChangeOrder, FoldedChanges, compute_key_codes, gather
from connector.sink.model.plan import TablePlan
from serde.arrays import Ints, unify_floats
from serde.connect.values.decimal_text import format_decimals
from serde.events.kinds.operations import NO_OP, TOMBSTONE
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, LogPositions, unknown_positions


@attrs.frozen
class DeletedKeyLog:
    """Where deleted keys are recorded: the table, the connector's name, and the time (epoch milliseconds)."""

    layout: TableLayout
    connector: str
    noted_ms: int

    @staticmethod
    def of(layout: TableLayout | None, connector: str) -> DeletedKeyLog | None:
        """Record deleted keys in a table of this layout from now on; None if there is none."""
        return None if layout is None else DeletedKeyLog(layout, connector, time.time_ns() // 1_000_000)


def build_deleted_key_rows(
    folded: FoldedChanges, table: TablePlan, ranks: Mapping[TopicPartition, int], memory: DeletedKeyLog
) -> pa.RecordBatch:
    """Return a row for each key that the batch leaves deleted, with the evidence of its age.

    A delete without evidence of its own (a tombstone, if events carry no deletes) gets the greatest timestamp known
    before it: of its key in the batch, else of its topic-partition. Without any the key is not recorded.
    """
    deleted = np.concatenate([part.deleted for part in folded.parts])
    gone = folded.winners[deleted[folded.winners]]
    if table.numbered:
        versions = np.concatenate([part.order.dedup for part in folded.parts])
        dates, places = versions[gone], unknown_positions(len(gone))
    else:
        dates, places = _collect_age(folded, gone, table, ranks)
    known = (dates != NO_VALUE) | (places[:, FIRST_NUMBER] != NO_VALUE)
    parts = gather(folded.parts, gone[known])
    if not parts:
        return pa.RecordBatch.from_pylist([], DELETED_KEYS_COLUMNS)
    keys = pa.concat_arrays([keys_to_text(read_columns(part.rows, table.layout.keys)) for part in parts])
    noted = pa.scalar(memory.noted_ms * 1000, pa.timestamp("us", "UTC"))
    names = (pa.repeat(pa.scalar(name), len(keys)) for name in (memory.connector, table.layout.name))
    numbers = (pa.array(np.ascontiguousarray(column)) for column in places[known].T)
    columns = [*names, keys, pa.array(dates[known]), pa.repeat(noted, len(keys)), *numbers]
    return pa.RecordBatch.from_arrays(columns, schema=DELETED_KEYS_COLUMNS)


def _collect_age(
    folded: FoldedChanges, gone: Ints, table: TablePlan, ranks: Mapping[TopicPartition, int]
) -> tuple[Ints, LogPositions]:
    order = ChangeOrder.concat([part.order for part in folded.parts])
    dates, places = order.date[gone], order.place[gone]
    ageless = np.isin(order.op[gone], (NO_OP, TOMBSTONE)) & (order.dedup[gone] == NO_VALUE)
    ageless &= places[:, FIRST_NUMBER] == NO_VALUE
    if not ageless.any():
        return dates, places
    codes = compute_key_codes(folded.parts, table.layout.keys)
    greatest = np.full(int(codes.max()) + 1, NO_VALUE, np.int64)
    np.maximum.at(greatest, codes, order.date)
    come_to = np.full(max(ranks.values()) + 1, NO_VALUE, np.int64)
    for at, known in table.watermarks.items():
        if at in ranks and known:
            come_to[ranks[at]] = max(mark.date for mark in known.values())
    of_key = greatest[codes[gone]]
    of_any = np.where(of_key != NO_VALUE, of_key, come_to[order.partition[gone]])
    return np.where(ageless, of_any, dates), places


def keys_to_text(columns: Sequence[pa.Array]) -> pa.StringArray:
    """Return each key as one text: equal for equal keys, also after a column was widened, different for others."""
    texts = [_to_text(c) if pa.types.is_integer(c.type) else _escape(_to_text(c)) for c in columns]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, ",")


def _escape(text: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), ",", "\\,")


def _to_text(column: pa.Array) -> pa.StringArray:
    array = unify_floats(column.storage if isinstance(column, pa.ExtensionArray) else column)
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    if pa.types.is_binary(array.type):
        return _to_hex(array)
    if pa.types.is_temporal(array.type):
        array = array.cast(pa.int32() if array.type.bit_width == 32 else pa.int64())  # noqa: PLR2004 - bits
    return format_decimals(array) if pa.types.is_decimal(array.type) else array.cast(pa.string())


def _to_hex(array: pa.BinaryArray) -> pa.StringArray:
    array = pa.concat_arrays([array])  # without an offset of its own
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[: len(array) + 1]
    digits = (data.to_pybytes() if data is not None else b"").hex().encode()
    return pa.StringArray.from_buffers(len(array), pa.py_buffer(starts * 2), pa.py_buffer(digits))
