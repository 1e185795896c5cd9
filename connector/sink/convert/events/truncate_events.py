"""changes -> truncates among them, and the changes that came after those: truncates themselves are no rows."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert.change_order import read_dedup_values, to_int64
from connector.sink.model.plan import TablePlan
from connector.sink.model.truncate_scope import REFUSED_REASON, TruncateScope
from connector.sink.model.truncates import ChangeTimes, Truncate, is_repeated
from serde.arrays import Ints, Mask
from serde.events.changes import Changes, filter_changes
from serde.events.kinds.operations import OP_TRUNCATE
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE, strip_log_name
from serde.faults import RecordError

_NO_ROWS: Ints = np.zeros(0, np.int64)


def read_truncates(
    run: ConsumerRecords, change: Changes, table: TablePlan | None, dedup_column: str
) -> Iterator[Truncate]:
    """Return the truncates among changes, but those that a replay or their source brings again."""
    indices = np.flatnonzero(change.op == OP_TRUNCATE)
    if not len(indices):
        return
    at = pa.array(indices)
    told = (change.ts_ns, change.total_order, read_dedup_values(change, dedup_column))
    numbers = (to_int64(one.take(at)).tolist() for one in told)
    for index, ts_ns, total_order, dedup in zip(indices.tolist(), *numbers, strict=True):
        offset = int(run.offset[change.rows[index]])
        if table is None or offset >= table.committed.get((run.topic, run.partition), 0):
            place = change.place[index]
            position = () if place[FIRST_NUMBER] == NO_VALUE else tuple(place.tolist())
            source, number = strip_log_name(change.origin[index].as_py()), -1 if table is None else table.index
            truncate = Truncate(run.topic, run.partition, offset, ts_ns, position, total_order, source, number, dedup)
            if table is not None and source in table.truncated.refused:
                continue
            if table is None or not is_repeated(truncate, table.find_last_truncate(source)):
                yield truncate


def refuse_truncates(change: Changes, table: TablePlan | None) -> Iterator[RecordError]:
    """Return the truncates that empty nothing, as nothing tells what."""
    if table is None or not table.truncated.refused:
        return
    for index in np.flatnonzero(change.op == OP_TRUNCATE).tolist():
        if strip_log_name(change.origin[index].as_py()) in table.truncated.refused:
            yield RecordError(int(change.rows[index]), "TASK_PUT", REFUSED_REASON.format(table=table.layout.name))


@attrs.frozen(eq=False)
class RowsBeforeTruncate:
    """Rows of a run that came before a truncate and stay: deletes, and changes that end their rows, as deletes do."""

    deletes: Ints = _NO_ROWS
    ended: Ints = _NO_ROWS


NOTHING_BEFORE = RowsBeforeTruncate()


@attrs.frozen(eq=False)
class TruncatedChanges:
    """What stays of changes (None: nothing), what of it came before a truncate, and how many of it cannot be told."""

    left: Changes | None
    before: RowsBeforeTruncate
    untold: int


def drop_truncated(run: ConsumerRecords, change: Changes, table: TablePlan | None) -> TruncatedChanges:
    """Leave out truncates themselves, and what came before those that emptied the table.

    Where deletes keep their rows little else is left out: a row ends as the last change before the truncate left it.
    What comes again behind the truncate tells nothing new of it, and a batch may end before it came to that last one.
    Nor of documents: the job has run before, without the truncate, and what came behind it had its version above what
    its key had in front of it. Of other tables that tell the order of changes deletes from before stay: each tells what
    the tombstone behind it is about, which would else be taken for one of its own, and take a row that came after the
    truncate.
    """
    keep, untold = change.op != OP_TRUNCATE, 0
    before, deletes, again = (np.zeros(len(keep), np.bool_) for _ in range(3))
    if table is not None and table.truncated != TruncateScope():
        moments = ChangeTimes(to_int64(change.ts_ns), change.op, change.deleted, change.place)
        names = [strip_log_name(name) for name in change.origin.dictionary.to_pylist()]
        whole = table.truncated.whole
        truncates = [] if whole is None else [(whole, np.ones(len(names), np.bool_))]
        for source, (truncate, _) in table.truncated.of_sources.items():
            truncates.append((truncate, np.array([name == source for name in names], np.bool_)))
        for truncate, named in truncates:
            own = named[np.asarray(change.origin.indices)]
            at, offset = (run.topic, run.partition), run.offset[change.rows]
            later, unknown = truncate.after(at, offset, moments)
            if table.keep_deletes:
                again |= own & ~later & truncate.mark_repeated(at, offset, moments)
            untold += int((keep & own & unknown).sum())
            before |= own & ~later
        before &= change.op != OP_TRUNCATE
        if table.keep_deletes:
            ended = RowsBeforeTruncate(ended=change.rows[before & ~again & ~change.deleted])
            return TruncatedChanges(_filter(change, keep & ~again), ended, untold)
        if table.tells_order:
            deletes = before & change.deleted
        if table.numbered:
            rows = RowsBeforeTruncate(change.rows[deletes], change.rows[before & ~change.deleted])
            return TruncatedChanges(_filter(change, keep), rows, untold)
    keep &= ~before | deletes
    return TruncatedChanges(_filter(change, keep), RowsBeforeTruncate(change.rows[deletes]), untold)


def _filter(change: Changes, keep: Mask) -> Changes | None:
    if keep.all():
        return change
    return filter_changes(change, keep) if keep.any() else None
