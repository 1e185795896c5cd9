"""Recorded events in batches cut at every point -> the rows that PostgreSQL had, by the sink's own batches."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.harness.tiers import tiered
from tests.model import recordings, truth
from tests.unit.local_sink import LocalSink, local_sink

VARIANTS = tuple(v for v in recordings.ALL_VARIANTS if v not in (recordings.DUPLICATES, recordings.AVRO))
"""Avro needs a registry, and what is sent again a table that is looked at."""

TABLES = ("customers", "order_lines", "full_pk", "uuid_key", "evolve", "Weird_Table", "defaults_t")
# A number column that gets another scale is another type where schemas tell it: by default dead letters.
CASES = tiered(
    [(v, t) for v, t in product(VARIANTS, TABLES) if t != "evolve" or v not in truth.TYPED],
    kept=[(VARIANTS[0], "customers"), (VARIANTS[1], "evolve")],
)
HARD = "debezium.sink.iceberg.upsert-keep-deletes=false"


def _sink(folder: Path, variant: str, table: str) -> LocalSink:
    texts = f"debezium.sink.iceberg.temporal-as-text={','.join(truth.AS_TEXT)}"
    return local_sink(folder, [f"topics={recordings.topic(variant, table)}", texts, "errors.tolerance=none", HARD])


def _read(sink: LocalSink, name: str) -> list[dict[str, Any]]:
    """The rows as Spark gives them: uuids are text."""
    return [
        {column: str(value) if isinstance(value, UUID) else value for column, value in row.items()}
        for row in sink.rows(name)
    ]


@pytest.mark.parametrize(("variant", "table"), CASES)
@pytest.mark.parametrize("step", [1, 2, 7])
def test_deleted_rows_go(tmp_path: Path, variant: str, table: str, step: int) -> None:
    """In hard-delete mode the table ends as PostgreSQL's did, however the events were cut into batches."""
    records = list(recordings.load(variant, table))
    sink = _sink(tmp_path, variant, table)
    for batch in recordings.in_batches(records, step, Random(step)):
        sink.process(*(((r.topic, r.partition), r.key, r.value) for r in batch))
    (name,) = sink.destination.rows
    assert truth.faults(variant, table, _read(sink, name)) == []
