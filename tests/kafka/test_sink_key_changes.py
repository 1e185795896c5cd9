"""Rows whose keys change, with values left out -> tables whose rows have what is theirs, however often keys change."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from attrs import frozen
from pyspark.sql import SparkSession

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import SEED, THOROUGH
from tests.harness.tiers import tiered
from tests.model.moving_rows import MovingRows, Tells
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


Told = tuple[int, int, str]
"""The number of a row, its counter, and its large value."""


@frozen
class Way:
    """What events tell of their order, and what the sink makes of them."""

    tells: Tells
    dedup: str = "__source_ts_ns"
    keep: str = "false"
    mode: str = "equality-delete"


WAYS = {
    "places": Way("places"),
    "places in transactions": Way("places in transactions", mode="position-delete"),
    "dates": Way("dates"),
    "rewritten": Way("places", mode="copy-on-write"),
    "time of processing": Way("places", "__ts_ns"),
    "soft": Way("places in transactions", keep="true"),
}


def _properties(topic: str, way: Way) -> dict[str, str]:
    fields = "op,source.ts_ns,ts_ns" + ("" if way.tells == "dates" else ",source.lsn")
    return {
        "topics": topic,
        "debezium.sink.iceberg.upsert-keep-deletes": way.keep,
        "debezium.sink.iceberg.write-mode": way.mode,
        "debezium.sink.iceberg.upsert-dedup-column": way.dedup,
        "debezium.transforms.unwrap.add.fields": fields,
    }


@pytest.mark.parametrize("way", tiered(WAYS, ["places in transactions"]))
def test_rows_take_what_is_theirs_along(
    way: str, topics: Topics, spark: SparkSession, plain_workspace: MakeWorkspace
) -> None:
    """Keys that change there and back, that are swapped, or given to other rows, in a batch and over some: each row has
    its own large value."""
    own, name = WAYS[way], f"moves_{way.replace(' ', '_')}_{SEED or 0}"
    source = MovingRows(name, Random(f"{way}{SEED or 0}"), keys=20, tells=own.tells)
    source.live(90 if THOROUGH else 45)
    third = len(source.ends) // 3
    ends = [source.ends[third], source.ends[2 * third], len(source.log)]
    assert _apply(source, ends, topics, InProcessSink(spark, plain_workspace(name, _properties(name, own)))) == _told(
        source
    )


@pytest.mark.thorough
@pytest.mark.parametrize("way", [way for way in WAYS if way != "dates"])
def test_rows_keep_what_is_theirs_when_changes_of_their_keys_come_again(
    way: str, topics: Topics, spark: SparkSession, plain_workspace: MakeWorkspace
) -> None:
    """A connector restarts and sends changes of keys again, whose old keys other rows have by then, and whose values
    nothing but the row itself has any more."""
    own, name = WAYS[way], f"moves_again_{way.replace(' ', '_')}_{SEED or 0}"
    rng = Random(f"again {way}{SEED or 0}")
    source = MovingRows(name, rng, keys=12, tells=own.tells, whole=0.0)
    ends = []
    for _ in range(3 if THOROUGH else 2):
        source.live(30 if THOROUGH else 15)
        ends.append(len(source.log))
        source.send_again(rng.choice(source.ends[-25:-1]))
    ends.append(len(source.log))
    assert _apply(source, ends, topics, InProcessSink(spark, plain_workspace(name, _properties(name, own)))) == _told(
        source
    )


def _apply(source: MovingRows, ends: Sequence[int], topics: Topics, inside: InProcessSink) -> dict[int, Told]:
    """Have the sink read up to one end after the other; what its table has then."""
    inside.take_in(topics, source.log, ends)
    rows = (row for row in inside.lake.rows(source.topic) if row.get("__deleted") != "true")
    return {row["id"]: (row["of"], row["n"], row["big"]) for row in rows}


def _told(source: MovingRows) -> dict[int, Told]:
    return {key: (row["of"], row["n"], row["big"]) for key, row in source.rows.items()}
