"""rows -> documents of a node, by this project's bulk requests and by opensearch-py's `parallel_bulk`, side by side.

`python -m benchmarks.documents [rows]` starts a node of its own and prints documents per second, for one hot index and
for 50 of them; each way six times in turns after a first time that does not count, and the median of the ratios. Both
send the same documents with the same ids and versions to indexes of the same mapping. Ours runs as the sink's tasks do,
one process per core, from Arrow rows; `parallel_bulk` is fed from one Python process, from dictionaries, with four
threads and chunks of 2,000. Rows and dictionaries are made before.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from opensearchpy import OpenSearch
from opensearchpy.helpers import parallel_bulk

from connector.demo.servers.opensearch_node import OpenSearchNode
from connector.opensearch.bulk.actions import WriteOptions, index_rows
from connector.opensearch.bulk.bulk_processor import BulkProcessor
from connector.opensearch.documents.document_ids import build_document_ids
from connector.opensearch.indexes.mapping import map_columns
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings

ROWS, BUCKET, INDEXES, ROUNDS = 200_000, 20_000, 50, 6
VERSION = 1_700_000_000_000_000_000


def rows(start: int, count: int) -> pa.RecordBatch:
    """Rows of 13 columns: whole numbers, decimals, texts, times, a double and a boolean."""
    ids = np.arange(start, start + count)
    texts = [pa.array([f"{word} {number % 977} of {number}" for number in ids]) for word in ("name", "street", "town")]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids),
            *texts,
            *(pa.array(ids * factor % 10_007) for factor in (3, 7, 11)),
            pa.array(ids * 1.25),
            pa.array(ids).cast(pa.decimal128(20, 0)),
            pa.array(1_700_000_000_000_000 + ids).cast(pa.timestamp("us", "UTC")),
            pa.array((ids % 20_000).astype(np.int32)).cast(pa.date32()),
            pa.array(ids % 2 == 0),
            pa.array([f"note {number % 13}" for number in ids]),
        ],
        [*("id", "name", "street", "town", "a", "b", "c", "d", "price", "seen", "day", "live", "note")],
    )


def ours(url: str, index: Callable[[int], str], count: int) -> float:
    """Seconds that the sink's way takes."""
    batches = _batches(count)
    jobs = [(url, index(place), place, count) for place in range(len(batches))]
    cores = os.cpu_count() or 2
    with ProcessPoolExecutor(cores, get_context("fork")) as pool:
        list(pool.map(_warm, range(cores)))
        began = time.monotonic()
        list(pool.map(_bucket, jobs))
        return time.monotonic() - began


@cache
def _batches(count: int) -> list[pa.RecordBatch]:
    """The rows in buckets; made before processes are forked, so that they find them ready."""
    return [rows(start, min(BUCKET, count - start)) for start in range(0, count, BUCKET)]


def _warm(_: int) -> None:
    list(index_rows(WriteOptions("x"), rows(0, 100), build_document_ids([pa.array(range(100))]), None, np.arange(100)))


def _bucket(job: tuple[str, str, int, int]) -> None:
    url, index, place, total = job
    bulk, batch = BulkProcessor(ConnectionSettings((url,)), BulkSettings(), _refuse), _batches(total)[place]
    count = len(batch)
    versions, ids = np.full(count, VERSION), build_document_ids([batch.column("id")])
    for actions in index_rows(WriteOptions(index), batch, ids, versions, np.arange(count)):
        bulk.send(actions)
    assert bulk.finish().indexed == count


def _refuse(tag: int, reason: str) -> None:
    raise AssertionError(f"document {tag}: {reason}")


def theirs(url: str, index: Callable[[int], str], count: int) -> float:
    """Seconds that `parallel_bulk` takes; the dictionaries are made before."""
    documents = [_plain(batch) for batch in _batches(count)]
    client = OpenSearch([url], pool_maxsize=8, timeout=60)
    began = time.monotonic()
    found = sum(ok for ok, _ in parallel_bulk(client, _actions(documents, index), thread_count=4, chunk_size=2_000))
    seconds = time.monotonic() - began
    assert found == count
    return seconds


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        row.update(price=str(row["price"]), seen=row["seen"].isoformat(), day=row["day"].isoformat())
    return rows


def _actions(documents: list[list[dict[str, Any]]], index: Callable[[int], str]) -> Iterator[dict[str, Any]]:
    for place, part in enumerate(documents):
        for row in part:
            yield {
                "_index": index(place),
                "_id": str(row["id"]),
                "version": VERSION,
                "version_type": "external_gte",
                "_source": row,
            }


def main(count: int = ROWS) -> None:
    """Measure, each way in turn, and print the medians of rates and ratios."""
    with TemporaryDirectory() as home, OpenSearchNode(Path(home)) as node:
        client = OpenSearch([node.url], timeout=60)
        mapping = {"properties": map_columns((field.name, field.type) for field in rows(0, 1).schema)}

        def fresh(case: str, names: int) -> Callable[[int], str]:
            for place in range(names):
                client.indices.delete(index=f"{case}-{place}", ignore=[404])
                client.indices.create(index=f"{case}-{place}", body={"mappings": mapping})
            # What making and deleting leaves to be done is nobody's.
            client.cluster.health(wait_for_events="languid", wait_for_no_initializing_shards=True, timeout="60s")
            return lambda place: f"{case}-{place % names}"

        ways = {"ours": ours, "parallel_bulk": theirs}
        for title, names in (("one hot index", 1), (f"{INDEXES} indexes", INDEXES)):
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for round_ in range(ROUNDS + 1):
                # The node grows faster for some minutes: whoever is always second would seem the faster one.
                for way, measure in list(ways.items())[:: -1 if round_ % 2 else 1]:
                    spent = measure(node.url, fresh(way.replace("_", "-"), names), count)
                    if round_:
                        seconds[way].append(spent)
            rates = {way: count / median(spent) for way, spent in seconds.items()}
            summary = ", ".join(f"{way} {rate:,.0f} documents/s" for way, rate in rates.items())
            pairs = zip(seconds["parallel_bulk"], seconds["ours"], strict=True)
            print(f"{title}: {summary}, ratio {median(other / own for other, own in pairs):.2f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
