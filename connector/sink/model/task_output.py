"""Tasks -> reducers by the shuffle, and -> the driver at the end: the rows that they hand on.

What the driver reads is of kind DRIVER, and bounded (`driver_output`); all other kinds stay on executors.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

import attrs
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.pandas.types import from_arrow_schema

from connector.sink.model.driver_output import OutputsLeft
from connector.sink.model.result import DriverOutput


class OutputKind(StrEnum):
    """What the payload of a row is.

    Rows of the table, packed by `job.shuffle`: CHANGES of a bucket; LATE_CANDIDATES of one; TOMBSTONES,
    UNAVAILABLE_ROWS, OLD_KEY_ROWS, LAST_ROWS and PATCHED_ROWS for the look-ups of those names; NEW_VERSIONS and
    TABLE_VERSIONS of a history.
    Keys, as `TaskOutput.of_keys` packs them: KEYS to replace, VERSION_KEYS, DELETES_WANTED and DELETES_FOUND of
    documents. KEY_CHANGES and WAITING_KEYS are the destination's own.
    """

    CHANGES = "changes"
    KEY_CHANGES = "key changes"
    LATE_CANDIDATES = "late candidates"
    TOMBSTONES = "tombstones"
    UNAVAILABLE_ROWS = "unavailable rows"
    OLD_KEY_ROWS = "old key rows"
    LAST_ROWS = "last rows"
    PATCHED_ROWS = "patched rows"
    NEW_VERSIONS = "new versions"
    TABLE_VERSIONS = "table versions"
    KEYS = "keys"
    VERSION_KEYS = "version keys"
    WAITING_KEYS = "waiting keys"
    DELETES_WANTED = "deletes wanted"
    DELETES_FOUND = "deletes found"
    DRIVER = "driver"


Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What Spark's `mapInArrow` runs."""

_ARROW_SCHEMA = pa.schema(
    [("kind", pa.string()), ("table", pa.int32()), ("bucket", pa.int32()), ("payload", pa.binary())]
)
OUTPUT_SCHEMA = from_arrow_schema(_ARROW_SCHEMA)


@attrs.frozen(eq=False)
class TaskOutput:
    """One row between tasks; `table` is the index in the plan, -1 where none is meant."""

    kind: OutputKind
    payload: bytes
    table: int = -1
    bucket: int = 0

    @staticmethod
    def of(value: DriverOutput) -> TaskOutput:
        """Wrap a value for the driver."""
        return TaskOutput(OutputKind.DRIVER, pickle.dumps(value))

    @staticmethod
    def of_keys(keys: pa.RecordBatch, table: int, kind: OutputKind = OutputKind.KEYS) -> TaskOutput:
        """Wrap key columns, as Spark can carry them, as one Arrow IPC stream."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, keys.schema) as writer:
            writer.write_batch(keys)
        return TaskOutput(kind, sink.getvalue().to_pybytes(), table)

    def to_row(self) -> tuple[str, int, int, bytes]:
        """Return it as a row of `OUTPUT_SCHEMA`."""
        return self.kind.value, self.table, self.bucket, self.payload

    @staticmethod
    def from_row(row: Row) -> TaskOutput:
        """Return a row of `OUTPUT_SCHEMA` as an output."""
        return TaskOutput(OutputKind(row.kind), bytes(row.payload), row.table, row.bucket)


def tell_driver(outputs: Iterable[TaskOutput]) -> Iterator[bytes]:
    """Return the payloads of what is for the driver, and one that says which other outputs there are."""
    left = set[tuple[int, OutputKind]]()
    for output in outputs:
        if output.kind == OutputKind.DRIVER:
            yield output.payload
        else:
            left.add((output.table, output.kind))
    if left:
        yield TaskOutput.of(OutputsLeft(frozenset(left))).payload


def unpack_keys(payload: pa.Buffer) -> pa.RecordBatch:
    """Unwrap key columns."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def unpack_value(payload: bytes) -> DriverOutput:
    """Unwrap a value for the driver."""
    value: DriverOutput = pickle.loads(bytes(payload))  # noqa: S301 - made by our own tasks
    return value


BATCH_BYTES, BATCH_ROWS = 1024**2, 256
"""How much goes into one record batch: each costs both sides, and many outputs are small."""


def to_batches(outputs: Iterable[TaskOutput]) -> Iterator[pa.RecordBatch]:
    """Return outputs as record batches of `OUTPUT_SCHEMA`."""
    waiting: list[TaskOutput] = []
    size = 0
    for output in outputs:
        waiting.append(output)
        size += len(output.payload)
        if size >= BATCH_BYTES or len(waiting) >= BATCH_ROWS:
            yield to_batch(waiting)
            waiting, size = [], 0
    if waiting:
        yield to_batch(waiting)


def to_batch(outputs: Iterable[TaskOutput]) -> pa.RecordBatch:
    """Return outputs as one record batch of `OUTPUT_SCHEMA`."""
    rows = list(outputs)
    columns = [[p.kind for p in rows], [p.table for p in rows], [p.bucket for p in rows], [p.payload for p in rows]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)


def read_rows(record_batch: pa.RecordBatch) -> Iterator[tuple[OutputKind, int, int, pa.Buffer]]:
    """Return (kind, table, bucket, payload without a copy) of each row."""
    kinds, tables, buckets, payloads = record_batch.columns
    for i in range(record_batch.num_rows):
        yield OutputKind(kinds[i].as_py()), tables[i].as_py(), buckets[i].as_py(), payloads[i].as_buffer()
