"""A run that raises as it is decoded -> its halves, and theirs, down to the records that are why: dead letters.

The last line of defence. What a record may hold is foreseen where it is read, and named there; what nobody foresaw must
end no task, since it would be the same after every restart. Errors of the world around (broker, registry, storage) are
of other classes and go through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pyarrow as pa

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert.decoded_records import DecodedRecords
from serde.arrays import Ints
from serde.faults import RecordError

CONTENT_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
    pa.ArrowException,
)
"""What content makes code raise that did not expect it."""

Decode = Callable[[ConsumerRecords], DecodedRecords]
T = TypeVar("T")


def isolate_failures(run: ConsumerRecords, decode: Decode) -> DecodedRecords:
    """Decode a run; where that raises, decode what can be, and name the others. Cost: nothing, but where it raises.

    Raises what decoding a run without any record raises: that is no record's fault.
    """
    try:
        return decode(run)
    except CONTENT_ERRORS:
        decode(run.only(np.zeros(0, np.int64)))
    return DecodedRecords.merge(
        [(places, _decode_half(run.only(places), decode)) for places in _split_in_half(len(run.offset))]
    )


def _decode_half(run: ConsumerRecords, decode: Decode) -> DecodedRecords:
    try:
        return decode(run)
    except CONTENT_ERRORS as error:
        if len(run.offset) == 1:
            # The text of the error is left out: it may tell what the record holds.
            return DecodedRecords(
                faults=(RecordError(0, "TASK_PUT", f"the record cannot be decoded ({type(error).__name__})"),)
            )
    return DecodedRecords.merge(
        [(places, _decode_half(run.only(places), decode)) for places in _split_in_half(len(run.offset))]
    )


def readable(run: ConsumerRecords, read: Callable[[ConsumerRecords], list[T]]) -> list[T]:
    """Read something of a run's records; where that raises, of those that can be read: decoding them names the others.

    Raises as `isolate_failures`.
    """
    try:
        return read(run)
    except CONTENT_ERRORS:
        read(run.only(np.zeros(0, np.int64)))
    parts = [run.only(places) for places in _split_in_half(len(run.offset))] if len(run.offset) > 1 else []
    return [one for part in parts for one in readable(part, read)]


def _split_in_half(count: int) -> list[Ints]:
    return [half for half in np.array_split(np.arange(count), 2) if len(half)]
