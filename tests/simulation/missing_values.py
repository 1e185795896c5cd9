"""Tombstones, rows with unsent values, patches -> files with the rows that a table completes, joined in this process.

What is joined and written is the product's own (`lookups`); here is only what Spark does: pairs of rows with one key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from uuid import UUID

import attrs
import numpy as np
import pyarrow as pa

from connector.errors import FatalError
from connector.iceberg.keys.key_ranges import KeyRanges
from connector.iceberg.types.nested_columns import read_columns
from connector.iceberg.types.values.spark_types import to_spark
from connector.iceberg.write.table_writer import TableWriter
from connector.sink.destinations.iceberg.lookups import (
    document_patches,
    row_rewrite,
    tombstones,
    truncated_rows,
    unavailable_values,
)
from connector.sink.destinations.iceberg.lookups.filled_values import TableSides, coalesce_unavailable
from connector.sink.destinations.iceberg.lookups.held_rows import (
    AgeColumns,
    find_place_column,
    find_time_column,
)
from connector.sink.destinations.iceberg.lookups.key_chains import follow_chains
from connector.sink.destinations.iceberg.lookups.key_changes import (
    CHANGED,
    RECORD,
    SINCE,
    TOOK,
    RowsBefore,
    _forget_unsent,
    _unpack_marks,
    encode_place,
    link_rows,
    read_moments,
)
from connector.sink.destinations.iceberg.lookups.truncated_rows import TruncatedRows
from connector.sink.destinations.iceberg.lookups.unavailable_values import _may_be_unavailable
from connector.sink.destinations.join_columns import column_aliases
from connector.sink.destinations.soft_deletes import mark_deleted
from connector.sink.fold.values.document_patches import patch_rows
from connector.sink.job.shuffle import unpack
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan
from connector.sink.model.result import JobResult, KeyLookup
from connector.sink.model.task_output import OutputKind, TaskOutput, read_rows, unpack_value
from serde.events.changes import DELETED_COLUMN
from tests.simulation.interruptions import Interruptions
from tests.simulation.java_table import JavaTable
from tests.simulation.replacements import replaced
from tests.simulation.row_ages import NEVER, HeldRow, Row, RowAges, read_moment
from tests.simulation.store import MemoryFiles, store_away

Key = tuple[Any, ...]
KINDS = frozenset(
    {
        OutputKind.TOMBSTONES,
        OutputKind.UNAVAILABLE_ROWS,
        OutputKind.OLD_KEY_ROWS,
        OutputKind.LAST_ROWS,
        OutputKind.PATCHED_ROWS,
    }
)
_EVENT = (
    RECORD,
    "_at_moved",
    "_dedup",
    "_source",
    "_first",
    "_second",
    "_third",
    "_ended",
    "_suspect",
    "_time",
    "_place",
    "_is_row",
)
_HELD = "_held"
_BEFORE, _KNOWN = "_before_record", "_known"


@attrs.frozen(eq=False)
class MemoryMissingValueLookup:
    """As the product's own look-up (`lookups.table_lookups.MissingValueLookup`), over outputs in a list."""

    tables: Sequence[JavaTable]
    calls: Interruptions
    dedup_column: str
    op_field: str
    prefix: str

    def applies(self, table: TablePlan, result: JobResult) -> bool:
        return table.needs_tombstone_lookup or table.patches

    def run(
        self,
        outputs: Sequence[TaskOutput],
        table: TablePlan,
        result: JobResult,
        until: ExitStack,
    ) -> Iterator[list[TaskOutput]]:
        """Write the files, where there are such rows."""
        java = self.tables[table.index]
        parts: dict[OutputKind, list[ChangeBatch]] = defaultdict(list)
        for one in outputs:
            if one.kind in KINDS:
                parts[one.kind].append(unpack(one.payload, table.layout.rows))
        if not parts.keys() - {OutputKind.LAST_ROWS}:
            return
        live, struck = self.calls.call(f"read rows of {java.now.name}", lambda: _read_rows(java, table), store_away)
        with replaced([(row_rewrite, "TableWriter", partial(TableWriter, files=MemoryFiles(java.server.store)))]):
            if asked := parts[OutputKind.TOMBSTONES]:
                yield _mark_deleted(asked, table, live)
            if parts[OutputKind.UNAVAILABLE_ROWS]:
                yield self._fill(parts, table, live, struck)
            if asked := parts[OutputKind.PATCHED_ROWS]:
                yield _patch(asked, table, live)

    def _fill(
        self,
        parts: dict[OutputKind, list[ChangeBatch]],
        table: TablePlan,
        live: Sequence[HeldRow],
        struck: Sequence[HeldRow],
    ) -> list[TaskOutput]:
        """As `lookups.unavailable_values.fill_from_table`."""
        moved = bool(parts[OutputKind.OLD_KEY_ROWS])
        columns = table.layout.columns
        names = [f.name for f in columns if f.name not in table.layout.keys and _may_be_unavailable(f.type)]
        times = find_time_column(table.layout, self.dedup_column, self.prefix) if moved else None
        told = AgeColumns(times, None if times is None else find_place_column(table.layout, self.prefix))
        order = times or (self.dedup_column if self.dedup_column in columns.names else None)
        ages = RowAges(attrs.evolve(told, time=order), self.op_field)
        came, dated = _join_parts(parts[OutputKind.UNAVAILABLE_ROWS]), times is not None
        held_by_key, gone_by_key = _by_key(live, table.layout.keys), _by_key(struck, table.layout.keys)
        stood = _by_key([*live, *struck], table.layout.keys)
        before = _follow(parts, table, RowsBefore(table, names, told), held_by_key, stood, ages) if moved else {}
        own, places = _keys(came.rows, table.layout.keys), [column.to_pylist() for column in encode_place(came)]
        knowing: list[Row] = []
        held: dict[str, list[HeldRow | None]] = {"own": [], "held": [], "live": [], "struck": []}
        for at in range(len(came)):
            known = before.get(places[0][at]) if places[1][at] else None
            under = own[at] if not places[1][at] else (None,) if known is None else known[0]
            changed, since = (
                (NEVER, NEVER) if known is None else (read_moment(known[1], one) for one in (CHANGED, SINCE))
            )
            knowing.append({} if known is None else known[1])
            held["own"].append(ages.find_own(held_by_key.get(own[at], ()), since if dated else NEVER))
            held["held"].append(None if known is None else known[1].get(_HELD))
            for side, rows in (("live", held_by_key), ("struck", gone_by_key)):
                asked = () if side == "struck" and not places[1][at] else rows.get(under, ())
                found = [one for one in asked if not dated or ages.is_before(one, changed)]
                last = max(found, key=ages.rank) if found else None
                held[side].append(None if last is None else ages.doubt(last, changed if dated else NEVER))
        values = dict(zip(columns.names, came.rows.columns, strict=True))
        for place, name in enumerate(names):
            kind, alias = columns.field(name).type, column_aliases("before", len(names))[place]
            stored = {
                side: pa.array([None if one is None else one.values[name] for one in rows], kind)
                for side, rows in held.items()
            }
            told_of = TableSides()
            if moved:
                values[name] = coalesce_unavailable(values[name], told_of.take("own", stored["own"], None))
                told_before = pa.array([row.get(alias) for row in knowing], kind)
                values[name] = coalesce_unavailable(values[name], told_before)
            for side in ("held", "live", "struck") if moved and order is not None else ("live",):
                unsure = np.array([one is not None and one.unsure for one in held[side]], np.bool_)
                there = np.array([one is not None for one in held[side]], np.bool_) & ~np.array(places[1], np.bool_)
                stored_there = there if side == "live" else None
                values[name] = coalesce_unavailable(
                    values[name], told_of.take(side, stored[side], unsure), stored_there
                )
        batch = pa.RecordBatch.from_arrays(list(values.values()), schema=columns)
        return _write(table, unavailable_values.FILE_LABEL, batch, lambda rows: rows)


def _read_rows(java: JavaTable, table: TablePlan) -> tuple[list[HeldRow], list[HeldRow]]:
    """The rows of a table at batch start, and those of its files that deletes hit."""
    if table.base is None:
        return [], []
    now = java.server.tables.get(java.now.name)
    if now is None or table.base not in now.snapshots:
        raise FatalError(f"snapshot {table.base} of {java.now.name} is gone")
    version, names = now.snapshots[table.base], table.layout.columns.names
    try:
        live = [HeldRow(_present(row, names), f.path, at) for f, at, row in java.server.live_rows(version)]
        known = {(one.file, one.position) for one in live}
        every = [
            (f.path, at, row) for f in version.files if f.is_data for at, row in enumerate(java.server.read(f.path))
        ]
    except KeyError as gone:
        raise FatalError(f"file {gone} of {java.now.name} is gone") from gone
    return live, [HeldRow(_present(row, names), path, at) for path, at, row in every if (path, at) not in known]


def _present(row: Row, names: Sequence[str]) -> Row:
    """A row under the columns that its table has by now."""
    return {name: row.get(name) for name in names}


def _follow(
    parts: dict[OutputKind, list[ChangeBatch]],
    table: TablePlan,
    rows: RowsBefore,
    held: Mapping[Key, Sequence[HeldRow]],
    stood: Mapping[Key, Sequence[HeldRow]],
    ages: RowAges,
) -> dict[int, tuple[Key, Row]]:
    """As `key_changes.RowsBefore.find`: by the record of a create the key before it, and what is known of the row."""
    keys, values, layout = rows.keys, rows.values, table.layout
    creates = _join_parts(parts[OutputKind.OLD_KEY_ROWS])
    asked = set(_keys(creates.rows, layout.keys))
    told = [_encode(creates, table, rows, is_row=False)]
    if parts[OutputKind.LAST_ROWS]:
        last = _join_parts(parts[OutputKind.LAST_ROWS])
        needed = [at for at, key in enumerate(_keys(last.rows, layout.keys)) if key in asked]
        told.append(_encode(last.take(np.asarray(needed, np.int64)), table, rows, is_row=True))
    events = pa.concat_batches([pa.RecordBatch.from_arrays(one, [*keys, *values, *_EVENT]) for one in told])
    own, since, took = (attrs.astuple(one) for one in (CHANGED, SINCE, TOOK))
    linked = link_rows(events, keys, values, [RECORD, *keys, *values, *own, _BEFORE, _KNOWN, *took])
    if rows.ages.time is not None:
        linked = _forget_older_rows(linked, rows, stood, ages)
    found: dict[int, Row] = {
        row[RECORD]: {**row, **dict(zip(since, read_moment(row, CHANGED), strict=True))} for row in linked.to_pylist()
    }
    moved = linked.filter(linked.column(_BEFORE).is_valid())
    if moved.num_rows:
        for row in moved.to_pylist():
            before, key = found.get(row[_BEFORE], {}), tuple(row[name] for name in keys)
            got = NEVER if rows.ages.time is None or not before else read_moment(before, CHANGED)
            found[row[RECORD]][_HELD] = ages.find_within(held.get(key, ()), got, read_moment(row, CHANGED))
        found |= _follow_moved(moved, found, rows)
    return {record: (tuple(row[key] for key in keys), row) for record, row in found.items()}


def _forget_older_rows(
    linked: pa.RecordBatch, rows: RowsBefore, stood: Mapping[Key, Sequence[HeldRow]], ages: RowAges
) -> pa.RecordBatch:
    """As `key_changes.RowsBefore._forget_older_rows`."""
    kept = []
    for row in linked.to_pylist():
        key, took, changed = tuple(row[name] for name in rows.keys), read_moment(row, TOOK), read_moment(row, CHANGED)
        if took[0] is not None and any(ages.is_between(one, took, changed) for one in stood.get(key, ())):
            row |= {**dict.fromkeys((*rows.values, _BEFORE)), _KNOWN: [False] * len(row[_KNOWN])}
        kept.append(row)
    return pa.RecordBatch.from_pylist(kept, linked.schema)


def _follow_moved(moved: pa.RecordBatch, found: dict[int, Row], rows: RowsBefore) -> dict[int, Row]:
    """As `key_changes.RowsBefore._follow`: rows that several changes of key made, with what the changes before know."""
    at, before = (np.array(moved.column(name)) for name in (RECORD, _BEFORE))
    holds = np.array([found[int(one)].get(_HELD) is not None for one in at])
    marks = np.column_stack([_unpack_marks(moved.column(_KNOWN), len(rows.names)), holds])
    names = (*rows.values, _HELD)
    made: dict[int, Row] = {}
    depths: dict[int, int] = {}
    for some in follow_chains(at, before, marks):
        for of, source, known, depth in zip(some.of, some.source, some.columns, some.depth, strict=True):
            row = made.setdefault(
                int(of), {**dict.fromkeys(names), **{one: found[int(of)][one] for one in attrs.astuple(SINCE)}}
            )
            told = found.get(int(source))
            if told is None:
                continue
            row |= {name: told.get(name) for name, mark in zip(names, known, strict=True) if mark and row[name] is None}
            if depth > depths.get(int(of), -1):
                depths[int(of)] = int(depth)
                row |= {name: told[name] for name in (*rows.keys, *attrs.astuple(CHANGED))}
    return made


def _encode(part: ChangeBatch, table: TablePlan, asked: RowsBefore, *, is_row: bool) -> list[pa.Array]:
    """As `key_changes.RowsBefore._read_events` encodes changes of key, and rows."""
    order, columns = part.order, table.layout.columns
    place = [pa.array(np.ascontiguousarray(column)) for column in order.place.T]
    known = [to_spark(column) for column in read_columns(part.rows, table.layout.keys)]
    known += [
        to_spark(_forget_unsent(part.rows.column(name)))
        if is_row
        else to_spark(pa.nulls(len(part), columns.field(name).type))
        for name in asked.names
    ]
    marks = [pa.array(part.deleted), pa.array(part.suspect)]
    age = [pa.array(order.dedup), *place, *marks, *read_moments(part, asked.ages)]
    return [*known, *encode_place(part), *age, pa.array([is_row] * len(part), pa.bool_())]


def _mark_deleted(asked: Sequence[ChangeBatch], table: TablePlan, live: Sequence[HeldRow]) -> list[TaskOutput]:
    """As `lookups.tombstones.mark_deleted_rows`."""
    wanted = {key for part in asked for key in _keys(part.rows, table.layout.keys)}
    rows = [one for one in live if _key(one.values, table.layout.keys) in wanted]
    rows = [one for one in rows if not _is_marked(one.values)]
    batch = pa.RecordBatch.from_pylist([one.values for one in rows], table.layout.columns)
    return _write(table, tombstones.FILE_LABEL, batch, mark_deleted)


def write_marked_rows(java: JavaTable, table: TablePlan, which: TruncatedRows) -> JobResult:
    """As `lookups.truncated_rows.write_marked_rows`."""

    def goes(row: Row) -> bool:
        late = which.until is not None and row[which.until[0]] is not None and row[which.until[0]] > which.until[1]
        return not late and not _is_marked(row) and all(row[column] == value for column, value in which.source_columns)

    live, _ = java.calls.call(f"read rows of {java.now.name}", lambda: _read_rows(java, table), store_away)
    batch = pa.RecordBatch.from_pylist([one.values for one in live if goes(one.values)], table.layout.columns)
    with replaced([(row_rewrite, "TableWriter", partial(TableWriter, files=MemoryFiles(java.server.store)))]):
        outputs = _write(table, truncated_rows.FILE_LABEL, batch, mark_deleted)
    result = JobResult().add(unpack_value(one.payload) for one in outputs if one.kind == OutputKind.DRIVER)
    keys: Any = [one for one in outputs if one.kind == OutputKind.KEYS]
    ranges = KeyRanges.join(result.key_ranges.get(table.index, ()))
    if ranges.count:
        result.key_lookups[table.index] = KeyLookup(keys, ranges)
    return result


def _is_marked(row: Row) -> bool:
    return str(row.get(DELETED_COLUMN)).lower() == "true"


def _patch(asked: Sequence[ChangeBatch], table: TablePlan, live: Sequence[HeldRow]) -> list[TaskOutput]:
    """As `lookups.document_patches.patch_table_rows`."""
    held, layout = _by_key(live, table.layout.keys), table.layout
    came = _join_parts(asked)
    made = []
    for at, key in enumerate(_keys(came.rows, layout.keys)):
        row, base = came.rows.slice(at, 1), held.get(key, ())
        for one in base[:1]:
            whole = pa.RecordBatch.from_pylist([one.values], layout.rows)
            row = patch_rows(row, whole, [came.patches[at].as_py()], layout.variants)  # type: ignore[index]
        made.append(row)
    batch = pa.RecordBatch.from_arrays(pa.concat_batches(made).columns, schema=layout.columns)
    return _write(table, document_patches.FILE_LABEL, batch, lambda rows: rows)


def _write(table: TablePlan, label: str, batch: pa.RecordBatch, rows: Any) -> list[TaskOutput]:
    task = row_rewrite.rewrite_task(table, label, rows)
    return [
        TaskOutput(kind, payload.to_pybytes(), index, bucket)
        for written in task(iter([batch] if batch.num_rows else []))
        for kind, index, bucket, payload in read_rows(written)
    ]


def _join_parts(parts: Sequence[ChangeBatch]) -> ChangeBatch:
    return ChangeBatch.concat(parts)


def _by_key(rows: Sequence[HeldRow], keys: Sequence[str]) -> dict[Key, list[HeldRow]]:
    found: dict[Key, list[HeldRow]] = defaultdict(list)
    for one in rows:
        found[_key(one.values, keys)].append(one)
    return found


def _key(row: Row, keys: Sequence[str]) -> Key:
    # Spark has uuids as text.
    return tuple(str(row[name]) if isinstance(row[name], UUID) else row[name] for name in keys)


def _keys(rows: pa.RecordBatch, keys: Sequence[str]) -> list[Key]:
    return list(zip(*(to_spark(column).to_pylist() for column in read_columns(rows, keys)), strict=True))
