"""rows -> bytes: the rows of `generate.py` as Debezium's JSON messages without a schema block.

`flattened` is the shape that ExtractNewRecordState leaves, `envelopes` is the connector's own (PostgreSQL, default
replica identity: no `before` in an update, only the key in that of a delete), `full_envelopes` that of a table whose
replica identity is FULL (`before` in both). Templates and not a JSON library, because millions are made; the strings of
the rows are plain ASCII words that need no escape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.generate import EVENTS_PER_TRANSACTION, VALUE_COLUMNS, Events, rows_before

Message = tuple[bytes, bytes]
_CHUNK = 50_000

_VALUES = '{"id":%d,"quantity":%d,"price":%r,"discount":%r,"status":"%s","note":"%s","active":%s,"updated_at":%d'
_FLATTENED = _VALUES + ',"__deleted":"%s","__op":"%s","__table":"%s","__source_ts_ns":%d,"__db":"%s"}'
_SOURCE = (
    '{"version":"3.7.0.Final","connector":"postgresql","name":"bench","ts_ms":%d,"snapshot":"false","db":"%s",'
    '"sequence":"[\\"%d\\",\\"%d\\"]","ts_us":%d,"ts_ns":%d,"schema":"public","table":"%s","txId":%d,"lsn":%d,'
    '"xmin":null,"origin":null,"origin_lsn":null}'
)
_ENVELOPE = '{"before":%s,"after":%s,"source":%s,"transaction":null,"op":"%s","ts_ms":%d,"ts_us":%d,"ts_ns":%d}'
_GONE = '{"id":%d,' + ",".join(f'"{name}":null' for name in VALUE_COLUMNS[1:]) + "}"


def keys_of(ids: NDArray[np.int64]) -> list[bytes]:
    """The record keys (JSON without schema block) of `ids`."""
    return [b'{"id":%d}' % number for number in ids.tolist()]


def flattened(events: Events) -> Iterator[list[Message]]:
    """Lists of (key, flattened value), 50,000 at a time, in produce order."""
    for start in range(0, len(events), _CHUNK):
        chunk = events.rows.slice(start, _CHUNK)
        values = [(_FLATTENED % row).encode() for row in _tuples(chunk)]
        yield list(zip(keys_of(events.ids[start : start + _CHUNK]), values, strict=True))


def envelopes(events: Events) -> Iterator[list[Message]]:
    """Lists of (key, envelope), 50,000 at a time, in produce order."""
    for start in range(0, len(events), _CHUNK):
        rows = _tuples(events.rows.slice(start, _CHUNK))
        first = events.first + start
        values = [_envelope(row, first + place, _before(row)).encode() for place, row in enumerate(rows)]
        yield list(zip(keys_of(events.ids[start : start + _CHUNK]), values, strict=True))


def full_envelopes(events: Events) -> Iterator[list[Message]]:
    """As `envelopes`, of a table whose replica identity is FULL."""
    before = rows_before(events)
    for start in range(0, len(events), _CHUNK):
        rows = zip(_tuples(events.rows.slice(start, _CHUNK)), _tuples(before.slice(start, _CHUNK)), strict=True)
        first = events.first + start
        values = [
            _envelope(row, first + place, "null" if row[9] == "c" else _VALUES % old + "}").encode()
            for place, (row, old) in enumerate(rows)
        ]
        yield list(zip(keys_of(events.ids[start : start + _CHUNK]), values, strict=True))


def _tuples(rows: Any) -> Iterable[tuple[Any, ...]]:
    columns = [rows[name].to_pylist() for name in rows.column_names]
    place = rows.column_names.index("active")
    columns[place] = ["true" if active else "false" for active in columns[place]]
    return zip(*columns, strict=True)


def _before(row: tuple[Any, ...]) -> str:
    return _GONE % row[0] if row[9] == "d" else "null"


def _envelope(row: tuple[Any, ...], number: int, before: str) -> str:
    """One event as envelope; `number` is its place in the stream and gives its lsn and transaction id."""
    values, (op, table, ts_ns, database, ts_ms) = row[:8], row[9:]
    lsn = 490_000_000 + number * 120
    sent = (ts_ns // 1_000_000, database, lsn - 120, lsn, ts_ns // 1_000, ts_ns, table)
    source = _SOURCE % (*sent, 1_000 + number // EVENTS_PER_TRANSACTION, lsn)
    after = "null" if op == "d" else _VALUES % values + "}"
    return _ENVELOPE % (before, after, source, op, ts_ms, ts_ms * 1_000, ts_ms * 1_000_000)
