"""generated events -> CPU per event of reading them: record batches of several sizes, JSON with and without layouts.

`python -m benchmarks.wire.reading [EVENTS]`; one process, no broker, no JVM. Both ways of reading JSON take turns, and
their columns must be the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from benchmarks.generate import append_events, upsert_events
from benchmarks.messages import Message, envelopes, flattened
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.records.batch_reader import read_batches
from connector.kafka.consumer.records.record_batches import parse_batches
from connector.kafka.consumer.records.unreadable_records import UnreadableBatch
from serde.formats import make_deserializer
from serde.json.columns import trailer_reader
from serde.messages import DecodedMessages
from tests.model.record_batches import Record, batch

ROUNDS = 6
BATCH_SIZES = (1, 3, 8, 20, 1_000)
_EVENTS, _PIECE = 40_000, 20_000
_NEVER = 1 << 60
_Way = TypeVar("_Way")


def measure_batches(messages: Sequence[Message]) -> Iterator[str]:
    """Fetched bytes -> columns, by how many records a batch has."""
    records = [Record(place, key, value) for place, (key, value) in enumerate(messages)]
    logs = {size: _log(records, size) for size in BATCH_SIZES}
    for size, seconds in _best({size: _reading(log) for size, log in logs.items()}).items():
        yield f"record batches of {size:5,}: {seconds / len(records) * 1e6:5.2f} us a record"


def measure_json(name: str, values: Sequence[bytes]) -> Iterator[str]:
    """Messages -> columns, with the last fields parsed and compared."""
    pieces = [pa.array(values[at : at + _PIECE], pa.binary()) for at in range(0, len(values), _PIECE)]
    ways = {"parsed": _decoding(pieces, _NEVER), "compared": _decoding(pieces, trailer_reader._MIN_ROWS)}
    parsed, compared = (way() for way in ways.values())
    if not all(map(_same, parsed, compared)):
        raise RuntimeError(f"{name}: columns differ")
    best = _best(ways)
    times = ", ".join(f"{way} {seconds / len(values) * 1e6:.2f} us" for way, seconds in best.items())
    yield f"JSON, {name}: {times} an event: {best['parsed'] / best['compared']:.2f} x"


def _log(records: Sequence[Record], size: int) -> memoryview:
    parts = (records[at : at + size] for at in range(0, len(records), size))
    return memoryview(b"".join(batch(some, some[0].offset, some[-1].offset) for some in parts))


def _reading(log: memoryview) -> Callable[[], object]:
    def read() -> list[ConsumerRecords]:
        batches = read_batches(parse_batches(log), log, 0, 2**62, len(log))
        return [ConsumerRecords.of_fetched("t", 0, some) for some in batches if not isinstance(some, UnreadableBatch)]

    return read


def _decoding(pieces: Sequence[pa.Array], rows: int) -> Callable[[], list[DecodedMessages]]:
    reader = make_deserializer("json")

    def decode() -> list[DecodedMessages]:
        usual, trailer_reader._MIN_ROWS = trailer_reader._MIN_ROWS, rows
        try:
            return [reader.decode(piece, "VALUE_CONVERTER") for piece in pieces]
        finally:
            trailer_reader._MIN_ROWS = usual

    return decode


def _best(ways: Mapping[_Way, Callable[[], object]]) -> dict[_Way, float]:
    """The fewest CPU seconds of each, in turns."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for way, run in ways.items():
            began = time.process_time()
            run()
            best[way] = min(best[way], time.process_time() - began)
    return best


def _same(one: DecodedMessages, other: DecodedMessages) -> bool:
    return len(one.blocks) == len(other.blocks) and all(
        a.fields.equals(b.fields) for a, b in zip(one.blocks, other.blocks, strict=True)
    )


def main(count: int) -> None:
    """Print a line per measurement."""
    changed = [one for chunk in envelopes(upsert_events(count, count, 1, "orders")) for one in chunk]
    added = [value for chunk in flattened(append_events(count, "orders")) for _, value in chunk]
    for line in (
        *measure_batches(changed),
        *measure_json("envelopes", [value for _, value in changed]),
        *measure_json("flattened", added),
    ):
        print(line)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else _EVENTS)
