"""Topics in which a connector sends again, batches that end anywhere -> ends that cut no transaction, and no waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from connector.settings.kafka.transactions import TransactionSettings
from connector.sink.microbatch.transactions import transactions
from connector.sink.microbatch.transactions.transaction_task import TRANSACTION_SCHEMA
from connector.sink.microbatch.transactions.transactions import Transactions
from connector.sink.model.micro_batch import MicroBatch
from tests.harness.rounds import SEED

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TABLE, ENDS = "server.public.t", "transactions"
Place = tuple[str, int]


@attrs.frozen
class Told:
    """What a record tells of a transaction: the number of an event, or how many there are."""

    id: str
    order: int | None = None
    count: int | None = None

    def row(self, place: Place, offset: int) -> dict[str, Any]:
        ends = self.order is None
        table = None if ends else "public.t"
        named = {"collection": table, "with_db": table, "whole": "public.t", "said": "public.t" if ends else None}
        told = {"ends": ends, "topic": place[0], "partition": place[1], "id": self.id, **named, "ts_ms": 0}
        orders = None if ends else [self.order]
        return {**told, "count": self.count if ends else 1, "orders": orders, "first": offset, "last": offset}


def _make_source(rng: Random, count: int) -> list[tuple[Place, Told]]:
    """Transactions one after the other, as a connector sends them: events over two partitions, and their end."""
    made: list[tuple[Place, Told]] = []
    for number in range(count):
        events = rng.randint(1, 5)
        made += [((TABLE, rng.randrange(2)), Told(str(number), order)) for order in range(1, events + 1)]
        made.append(((ENDS, 0), Told(str(number), None, events)))
    return made


def _make_log(rng: Random, source: list[tuple[Place, Told]]) -> dict[Place, list[Told]]:
    """What is in Kafka: the connector starts again with a transaction now and then, and a producer writes records once
    more.
    """
    first = [at for at, (_, told) in enumerate(source) if told.order == 1]
    log: dict[Place, list[Told]] = {(TABLE, 0): [], (TABLE, 1): [], (ENDS, 0): []}
    at = 0
    while at < len(source):
        place, told = source[at]
        log[place].append(told)
        if told.order is not None and rng.random() < 0.05:
            log[place].append(told)
        at += 1
        if rng.random() < 0.08:
            at = rng.choice([one for one in first if one < at][-4:])
    return log


def _grow(rng: Random, end: Mapping[Place, int], log: Mapping[Place, list[Told]]) -> dict[Place, int]:
    """Where the next batch may end: some partitions are ahead of others."""
    return {place: min(len(log[place]), offset + rng.randint(0, 7)) for place, offset in end.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
def test_no_transaction_is_cut_and_none_is_waited_for(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """However often a connector ends, within a transaction too, and starts again with one: each is taken in whole, and
    as time stands still nothing is let through that is not.
    """
    rng = Random(f"cuts {seed} {SEED or 0}")
    source = _make_source(rng, 12)
    log = _make_log(rng, source)
    wanted: dict[str, set[int]] = defaultdict(set)
    for _, told in source:
        if told.order is not None:
            wanted[told.id].add(told.order)

    def task(plan: Any, _: str | None) -> Any:
        rows = plan.rows

        def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for _ in range(batch.num_rows):
                    yield pa.RecordBatch.from_pylist(rows, schema=TRANSACTION_SCHEMA)

        return tell

    monkeypatch.setattr(transactions, "transaction_task", task)
    cutter = Transactions(spark, TransactionSettings(ENDS, 1_000), lambda: 0.0)
    at = dict.fromkeys(log, 0)
    spark_end, taken = dict(at), defaultdict[str, set[int]](set)
    everything = {place: len(records) for place, records in log.items()}
    for number in range(60):
        if at == everything:
            break
        spark_end = _grow(rng, spark_end, log) if number < 50 else everything
        batch = MicroBatch(number, dict(at), dict(spark_end))
        unread = cutter.find_unread(batch)
        rows = [
            log[place][offset].row(place, offset)
            for place, end in unread.end.items()
            for offset in range(unread.start[place], end)
        ]
        end = cutter.whole(batch, SimpleNamespace(assignment=SimpleNamespace(shares=[0]), rows=rows)).batch.end  # type: ignore[arg-type]
        for place, offset in end.items():
            for told in log[place][at[place] : offset]:
                if told.order is not None:
                    taken[told.id].add(told.order)
        at.update(end)
        cut = {one: orders for one, orders in taken.items() if orders != wanted[one]}
        assert not cut, f"batch {number} up to {end}"
    assert at == everything, f"stands at {at} of {everything}"
    assert taken == wanted
