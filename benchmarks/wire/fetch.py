"""a topic of records of 620 bytes -> Arrow columns, by each of the sink's readers: CPU seconds per million, no JVM.

A process of its own (`python -m benchmarks.wire.fetch JOB`), librdkafka's threads included. Both must give the same
records.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pyarrow.compute as pc

from benchmarks.topics import end_offsets, fill
from benchmarks.wire.figures import READERS
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.consumer.assignment import PartitionAssignment
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.kafka.consumer.fetcher import FetchSettings
from connector.kafka.consumer.offset_ranges import OffsetRange
from connector.runtime.spark.python_workers import keep_memory

ROUNDS = 3
RECORD_BYTES, KEY_BYTES = 620, 8
TOPIC = "wire.fetched"
_PIECE = 50_000


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Fill the topic, then read it in turns; `figures` are CPU seconds per million records, the best of the rounds."""
    keep_memory()  # as tasks do
    count = job["events"]
    feed = _filled(job["bootstrap"], count)
    feeds = {name: attrs.evolve(feed, reader=name) for name in READERS}
    read = {name: _digest(own.chunks(0)) for name, own in feeds.items()}
    best = dict.fromkeys(READERS, float("inf"))
    for _ in range(ROUNDS):
        for name, own in feeds.items():
            began = time.process_time()
            for _ in own.chunks(0):
                pass
            best[name] = min(best[name], time.process_time() - began)
    (one, *others) = read.values()
    fault = (
        None if one[0] == count and all(other == one for other in others) else f"the readers' records differ: {read}"
    )
    return {"figures": {name: seconds / count * 1e6 for name, seconds in best.items()}, "fault": fault}


def _filled(bootstrap: str, count: int) -> PartitionAssignment:
    chance = random.Random(1)
    values = [chance.randbytes(RECORD_BYTES - KEY_BYTES) for _ in range(1_000)]
    pieces = (range(at, min(at + _PIECE, count)) for at in range(0, count, _PIECE))
    fill(bootstrap, TOPIC, ([(b"%08d" % i, values[i % len(values)]) for i in piece] for piece in pieces))
    ranges = tuple(OffsetRange(TOPIC, number, 0, end) for number, end in enumerate(end_offsets(bootstrap, TOPIC)))
    return PartitionAssignment(ClusterAddress.of({"bootstrap.servers": bootstrap}), FetchSettings(), (ranges,))


def _digest(chunks: Iterator[ConsumerRecords]) -> tuple[int, int, int]:
    """Return how many records there are, their bytes, and the sum of the numbers in their keys."""
    rows = size = total = 0
    for chunk in chunks:
        rows += len(chunk.offset)
        size += sum(pc.sum(pc.binary_length(column)).as_py() for column in (chunk.key, chunk.value))
        keys = np.frombuffer(b"".join(chunk.key.to_pylist()), f"S{KEY_BYTES}")
        total += int(keys.astype(np.int64).sum())
    return rows, size, total


if __name__ == "__main__":
    body = json.loads(Path(sys.argv[1]).read_text())
    Path(body["result"]).write_text(json.dumps(main(body)))
