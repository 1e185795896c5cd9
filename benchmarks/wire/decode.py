"""topics, one in each format -> Arrow columns, by the sink's own fetching and decoding: events per CPU second, no JVM.

A process of its own (`python -m benchmarks.wire.decode JOB`), so that nothing else shares its caches. The columns that
the formats give must be the same.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.topics import end_offsets, fill
from benchmarks.wire.figures import FORMATS, JSON
from benchmarks.wire.messages import SCHEMA_ID, Events, events, messages
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.consumer.assignment import PartitionAssignment
from connector.kafka.consumer.fetcher import FetchSettings
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.runtime.spark.python_workers import keep_memory
from serde.formats import make_deserializer
from serde.wire_format import Deserializer

ROUNDS = 4
_PIECE = 50_000


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Fill the topics, then read them in turns; `figures` are events per CPU second, the best of the rounds."""
    keep_memory()  # as tasks do
    some = events(job["events"])
    feeds = {name: _filled(job["bootstrap"], name, some) for name in FORMATS}
    decoders = {name: make_deserializer(name, None, {SCHEMA_ID: (some.schema,)}.__getitem__) for name in FORMATS}
    read = {name: pa.concat_tables(_columns(feeds[name], decoders[name])) for name in FORMATS}
    faults = [name for name in FORMATS if not _same(read[name], read[JSON], len(some.values))]
    read.clear()
    best = dict.fromkeys(FORMATS, float("inf"))
    for _ in range(ROUNDS):
        for name in FORMATS:
            began = time.process_time()
            for _ in _columns(feeds[name], decoders[name]):
                pass
            best[name] = min(best[name], time.process_time() - began)
    fault = f"columns of {', '.join(faults)} differ from those of {JSON}" if faults else None
    return {"figures": {name: len(some.values) / seconds for name, seconds in best.items()}, "fault": fault}


def _filled(bootstrap: str, name: str, some: Events) -> PartitionAssignment:
    topic, values = f"wire.{name}", list(messages(name, some))
    pieces = range(0, len(values), _PIECE)
    fill(bootstrap, topic, ([(b"%d" % i, v) for i, v in enumerate(values[at : at + _PIECE])] for at in pieces))
    ranges = tuple(OffsetRange(topic, number, 0, end) for number, end in enumerate(end_offsets(bootstrap, topic)))
    return PartitionAssignment(ClusterAddress.of({"bootstrap.servers": bootstrap}), FetchSettings(), (ranges,))


def _columns(feed: PartitionAssignment, decoder: Deserializer) -> Iterator[pa.Table]:
    for chunk in feed.chunks(0):
        decoded = decoder.decode(chunk.value, "VALUE_CONVERTER")
        if decoded.faults:
            raise RuntimeError(f"{len(decoded.faults)} records of {chunk.topic} cannot be read")
        for block in decoded.blocks:
            yield pa.Table.from_struct_array(block.fields)


def _same(actual: pa.Table, expected: pa.Table, count: int) -> bool:
    """Compare values; without a schema a timestamp is the number that it is sent as."""
    if not actual.num_rows == expected.num_rows == count or actual.column_names != expected.column_names:
        return False
    pairs = zip(actual.columns, expected.columns, strict=True)
    return all(pc.all(pc.equal(one.cast(other.type), other)).as_py() for one, other in pairs)


if __name__ == "__main__":
    body = json.loads(Path(sys.argv[1]).read_text())
    Path(body["result"]).write_text(json.dumps(main(body)))
