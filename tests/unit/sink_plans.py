"""Plans and runs of records for the sink's unit tests: a table as text, records as Python values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from connector.iceberg.catalog.retention_properties import EXPIRE_SNAPSHOTS_PROPERTY
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.kafka.consumer import assign_ranges
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings import EventSettings, KafkaSettings
from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.model.plan import BatchPlan, FieldRoutes, TablePlan

Columns = Mapping[str, pa.DataType]
DATED: Columns = {
    "id": pa.int64(),
    "name": pa.string(),
    "n": pa.int64(),
    "region": pa.string(),
    "__deleted": pa.string(),
    "__source_ts_ns": pa.int64(),
}
"""The table of `tests.model.events.Database`, as the sink makes it."""


def layout(
    columns: Columns, keys: tuple[str, ...] = (), required: Iterable[str] = (), *, found: bool = False, **more: Any
) -> TableLayout:
    """A table of these columns that no catalog knows; `found`: another tool has made it."""
    properties = {} if found else {EXPIRE_SNAPSHOTS_PROPERTY: "true"}
    schema = build_table_schema(pa.schema(list(columns.items())), keys, frozenset(required), nanoseconds=False)
    spec = '{"spec-id":0,"fields":[]}'
    return TableLayout("d.t", "u", "/nowhere", schema.model_dump_json(), spec, 0, properties, {}, **more)


def append(index: int, columns: Columns, required: Iterable[str] = ()) -> TablePlan:
    """A table that is appended to."""
    return TablePlan(index, layout(columns, (), required), upsert=False, keep_deletes=False)


def upsert(index: int, columns: Columns, keys: tuple[str, ...], **more: Any) -> TablePlan:
    """A table with one row per key."""
    return TablePlan(index, layout(columns, keys), upsert=True, **{"keep_deletes": False, **more})


def plan(*tables: TablePlan, **changed: Any) -> BatchPlan:
    """A plan in which topic t goes to the first table."""
    values: dict[str, Any] = {
        "label": "x",
        "events": EventSettings("auto", "auto", (), "__"),
        "dedup_column": "__source_ts_ns",
        "op_field": "__op",
        "excluded_columns": frozenset(),
        "evolve": True,
        "tables": tables,
        "routes": {"t": 0} if tables and "routing" not in changed else {},
        "refused": {},
        "ranks": {("t", 0): 0},
        "assignment": assign_ranges(KafkaSettings("localhost:1", (), None, "", "earliest", {}, {}, {}), {}, {}, 1),
        "reducers": 1,
        "max_letters": 10,
    }
    return BatchPlan(**{**values, **changed})


def routing(rule: RouteSettings, *known: str, **refused: str) -> FieldRoutes:
    """Routes by the events themselves, over tables of these names."""
    return FieldRoutes(rule, {name: index for index, name in enumerate(known)}, refused)


def run(*values: Any, keys: Iterable[Any] | None = None, topic: str = "t") -> ConsumerRecords:
    """Records of one topic-partition from offset 100 on; a value of None is a tombstone."""
    given = list(keys) if keys is not None else [None] * len(values)
    offsets = np.arange(100, 100 + len(values))
    return ConsumerRecords(
        topic, 0, offsets, pa.array(map(_raw, given), pa.binary()), pa.array(map(_raw, values), pa.binary())
    )


def rows(outcome: DecodedRecords, table: int = 0) -> list[dict[str, Any]]:
    """The rows for one table, in order of their records."""
    found = [
        (int(offset), row)
        for index, part in zip(outcome.tables, outcome.parts, strict=True)
        if index == table
        for offset, row in zip(part.order.offset, part.rows.to_pylist(), strict=True)
    ]
    return [row for _, row in sorted(found, key=lambda pair: pair[0])]


def dead(outcome: DecodedRecords) -> dict[int, str]:
    """Reasons by record."""
    return {fault.row: fault.reason for fault in outcome.faults}


def _raw(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else orjson.dumps(value)
