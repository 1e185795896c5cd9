"""load -> events -> messages: envelopes of any number of columns, of any size, for any number of tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.generate import BASE_TS_NS, Events
from benchmarks.messages import Message
from benchmarks.plan import source_tables
from benchmarks.scale.plan import TOUCHED, Load

_CHUNK_BYTES, _LETTERS = 20_000_000, b"abcdefghijklmnopqrstuvwxyz0123456789"
_DELETED, _SEED = 0.1, 11
_SOURCE = (
    '{"version":"3.7.0.Final","connector":"postgresql","name":"bench","ts_ms":%d,"db":"shop","ts_ns":%d,'
    '"schema":"public","table":"%s","lsn":%d}'
)
_ENVELOPE = '{"before":null,"after":%s,"source":%s,"op":"%s","ts_ms":%d}'


def number_names(load: Load) -> list[str]:
    """The columns of numbers: the greater half."""
    return [f"n{place:03d}" for place in range(load.columns - load.columns // 2)]


def text_names(load: Load) -> list[str]:
    """The columns of texts."""
    return [f"t{place:03d}" for place in range(load.columns // 2)]


def scale_events(load: Load, table: str) -> Events:
    """The events of a load: values of each column differ from event to event."""
    rng = np.random.default_rng(_SEED)
    ids = rng.integers(0, load.keys, load.events, dtype=np.int64)
    op = np.where(rng.random(load.events) < _DELETED, "d", "u")
    columns: dict[str, pa.Array] = {"id": pa.array(ids), "p": pa.array(ids % TOUCHED)}
    for name in number_names(load):
        columns[name] = pa.array(rng.integers(0, 2**40, load.events, dtype=np.int64))
    for name in text_names(load):
        columns[name] = _texts(rng, load)
    return Events(table, pa.table(columns | {"__op": pa.array(op.tolist(), pa.string())}), ids)


def scale_messages(events: Events, load: Load) -> Iterator[list[Message]]:
    """Lists of (key, envelope) in produce order, about 20 MB each."""
    each = max(1, _CHUNK_BYTES // (load.columns * 14 + load.columns // 2 * load.text_bytes + 300))
    numbers, texts = number_names(load), text_names(load)
    shape = ",".join(['{"id":%d,"p":%d', *(f'"{name}":%d' for name in numbers), *(f'"{name}":"%s"' for name in texts)])
    tables = source_tables(load.tables) or [events.table]
    for start in range(0, len(events), each):
        rows = events.rows.slice(start, each)
        values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        yield [_message(shape, tables, start + place, row) for place, row in enumerate(values)]


def _message(shape: str, tables: list[str], number: int, row: tuple[Any, ...]) -> Message:
    *values, op = row
    key, partition = values[:2]
    ts_ms = BASE_TS_NS // 1_000_000 + number
    source = _SOURCE % (ts_ms, ts_ms * 1_000_000, tables[key % len(tables)], 490_000_000 + number)
    after = "null" if op == "d" else shape % tuple(values) + "}"
    envelope = _ENVELOPE % (after, source, op, ts_ms)
    return b'{"id":%d,"p":%d}' % (key, partition), envelope.encode()


def _texts(rng: np.random.Generator, load: Load) -> pa.Array:
    """Pieces of one random text, each from another place in it on: no two are equal, and none costs a draw per byte."""
    letters = np.frombuffer(_LETTERS, np.uint8)
    whole = letters[rng.integers(0, len(letters), load.text_bytes + 1_000_003)].tobytes()
    starts = rng.integers(0, 1_000_003, load.events).tolist()
    return pa.array([whole[start : start + load.text_bytes].decode() for start in starts], pa.string())
