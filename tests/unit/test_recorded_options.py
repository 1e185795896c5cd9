"""Recorded events as other options of connector, transforms and converters would have them -> the databases' rows.

Made of the recordings with schemas (`tests.model.connector_options`), and cut into batches as those are.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.harness.tiers import tiered
from tests.model import binlog_recordings, recordings, truth
from tests.model.binlog_recordings import SERVERS
from tests.model.binlog_rows import UNTOLD, row_text
from tests.model.connector_options import (
    Change,
    Flattening,
    binaries_as,
    decimals_as,
    in_cloud_events,
    of_an_earlier_version,
    of_columns,
    times_as,
    with_source_in_keys,
    without_schemas,
    without_tombstones,
    without_transactions,
)
from tests.model.recordings import Record
from tests.simulation.recorded import cuts, recorded_sink

KEEPS = "debezium.sink.iceberg.upsert-keep-deletes"
FIELDS = "debezium.transforms.unwrap.add.fields"
# Dates are of milliseconds there: rows have to have them, as a truncate would take those that have none.
UNDATED = ("mariadb", "an earlier version", "trunc_me")
ADDED = ("op", "source.ts_ns", "source.lsn", "source.gtid", "source.file", "source.pos", "source.server_id")
BARE = "of values"
RECORDS: Mapping[str, tuple[Change, Sequence[str]]] = {
    "no tombstones": (without_tombstones, ()),
    "no transactions": (without_transactions, ()),
    "an earlier version": (of_an_earlier_version, ()),
    "keys without schemas": (without_schemas("key"), ()),
    "values without schemas": (without_schemas("value"), (BARE,)),
    "cloud events": (in_cloud_events(schemas=True), ()),
    "cloud events without schemas": (in_cloud_events(schemas=False), (BARE,)),
    "sources in keys": (with_source_in_keys, ()),
    "rewrite": (Flattening("rewrite", ADDED), ()),
    "rewrite with tombstones": (Flattening("rewrite-with-tombstone", ADDED), ()),
    "rewrite, no field": (Flattening("rewrite"), ()),
    "tombstones": (Flattening("tombstone"), ()),
    "tombstones, with fields": (Flattening("tombstone", ADDED), ()),
    "deletes to tombstones": (Flattening("delete-to-tombstone", ADDED), ()),
    "other prefix": (Flattening("rewrite", ADDED, "_meta_"), (f"{FIELDS}.prefix=_meta_",)),
    "no prefix": (Flattening("rewrite", ADDED, ""), (f"{FIELDS}.prefix=",)),
}
POSTGRES = "json_schema_envelope_truenulls"
POSTGRES_TABLES = ("customers", "order_lines", "full_pk", "uuid_key", "evolve", "Weird_Table", "trunc_me", "exotic")
BINLOG_TABLES = ("trunc_me", "customers", "evolve", "busy", "types")
POSTGRES_CASES = tiered(
    [*product(RECORDS, POSTGRES_TABLES)], kept=[*zip(RECORDS, POSTGRES_TABLES * 2, strict=False)][: len(RECORDS)]
)
BINLOG_CASES = tiered(
    [*product(SERVERS, RECORDS, BINLOG_TABLES)],
    kept=[*((SERVERS[n % 2], name, BINLOG_TABLES[1 + n % 3]) for n, name in enumerate(RECORDS)), UNDATED],
)
STEPS = tiered((1, 3, 1000), kept=(3,))


def _rows(folder: Path, records: Sequence[Record], options: Iterable[str], deletes: str, step: int) -> list[Any]:
    topic = records[0].topic
    told = [f"{KEEPS}={str(deletes == 'soft').lower()}", "truncate.enabled=true", *(o for o in options if o != BARE)]
    with recorded_sink(folder, {topic: records}, told, restarts=step == 1) as sink:
        for end in cuts(records, step, Random(step)):
            sink.take(end)
        return [row for row in sink.rows(topic) if row.get("__deleted") not in ("true", True)]


@pytest.mark.parametrize(("name", "table"), POSTGRES_CASES)
@pytest.mark.parametrize("deletes", ["soft", "hard"])
@pytest.mark.parametrize("step", STEPS)
def test_the_rows_are_postgresqls(tmp_path: Path, name: str, table: str, deletes: str, step: int) -> None:
    """Whatever tells of a change beside its row, and in which form."""
    change, options = RECORDS[name]
    flat, bare = isinstance(change, Flattening), BARE in options
    told = [*options, f"debezium.sink.iceberg.temporal-as-text={','.join(truth.AS_TEXT)}"]
    told += ["debezium.sink.iceberg.decimal-as-text=d"] if table == "evolve" and not bare else []
    rows = _rows(tmp_path, list(change(recordings.load(POSTGRES, table))), told, deletes, step)
    shown = [{column: str(v) if isinstance(v, UUID) else v for column, v in row.items()} for row in rows]
    variant = "json_envelope" if bare else "json_schema_unwrap_rewrite" if flat else POSTGRES
    assert truth.faults(variant, table, shown) == []


@pytest.mark.parametrize(("server", "name", "table"), BINLOG_CASES)
@pytest.mark.parametrize("deletes", ["soft", "hard"])
@pytest.mark.parametrize("step", STEPS)
def test_the_rows_are_the_binlogs(tmp_path: Path, server: str, name: str, table: str, deletes: str, step: int) -> None:
    """The same of a MariaDB and a MySQL; without schemas nothing tells the types of some columns."""
    change, options = RECORDS[name]
    bare, flat = BARE in options, isinstance(change, Flattening)
    untold = flat or "cloud events without" in name
    told = [*options, "debezium.sink.iceberg.temporal-as-text=t0,t3,t6"] if untold else options
    rows = _rows(tmp_path, list(change(binlog_recordings.load(server, "schema", table))), told, deletes, step)
    _compare(server, table, rows, lambda _, value: value, skip=UNTOLD if bare else (), truncates=not flat)


def _compare(
    server: str,
    table: str,
    rows: Sequence[Mapping[str, Any]],
    read: Callable[[str, Any], Any],
    lose: Callable[[str, str | None], str | None] = lambda _, text: text,
    *,
    skip: Collection[str] = (),
    truncates: bool = True,
) -> None:
    state = binlog_recordings.state(server, "schema", table)
    names = [one for one in state[0] if one not in skip]
    found = [{one: lose(one, row_text(one, read(one, row.get(one)))) for one in names} for row in rows]
    wanted = [{one: lose(one, row[one]) for one in names} for row in state]
    if table == "trunc_me":
        # The transform lets no truncate through; a truncate's own second is told by places only.
        left = {"1", "2", "3"} if not truncates else {"3"} if server == "mariadb" else set()
        found = [row for row in found if row["id"] not in left]
    assert sorted(found, key=str) == sorted(wanted, key=str)


DECIMALS, BINARIES = ("bu", "de", "dw"), ("bi", "bl")


def _read_base64(name: str, value: Any) -> Any:
    return base64.urlsafe_b64decode(value) if name in BINARIES and value is not None else value


def _as_double(name: str, value: Any) -> Any:
    return None if value is None else repr(float(value)) if name in DECIMALS else value


_OF_A_DAY = re.compile(r"([01]\d|2[0-3]):")


def _to_ms(name: str, text: str | None) -> str | None:
    """Connect's types have milliseconds, and no TIME beyond a day (the connector fails)."""
    if text is None or (name in ("t0", "t3", "t6") and not _OF_A_DAY.match(text)):
        return None
    return text[: text.index(".") + 4] if name in ("d6", "t3", "t6") and "." in text else text


VALUES: Mapping[str, tuple[Change, Sequence[str], Callable[[str, Any], Any], Callable[[str, Any], Any]]] = {
    "decimals as strings": (of_columns(decimals_as("string")), (), lambda _, v: v, lambda _, t: t),
    "decimals as doubles": (of_columns(decimals_as("double")), (), lambda _, v: v, _as_double),
    "binaries in hex": (of_columns(binaries_as("hex")), (), lambda _, v: v, lambda _, t: t),
    "binaries in base64": (of_columns(binaries_as("base64-url-safe")), (), _read_base64, lambda _, t: t),
    "microseconds": (of_columns(times_as("microseconds")), (), lambda _, v: v, lambda _, t: t),
    "times in Connect's types": (of_columns(times_as("connect")), (), lambda _, v: v, _to_ms),
    "times as texts": (of_columns(times_as("isostring")), (), lambda _, v: v, lambda _, t: t),
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("flat", [False, True], ids=["envelope", "flat"])
def test_values_are_the_databases_in_every_mode(tmp_path: Path, server: str, name: str, flat: bool) -> None:
    """Each mode of `decimal.handling.mode`, `binary.handling.mode` and `time.precision.mode`."""
    change, options, read, lose = VALUES[name]
    records = list(change(binlog_recordings.load(server, "schema", "types")))
    if flat:
        records = list(Flattening("rewrite", ADDED)(records))
        options = [*options, "debezium.sink.iceberg.temporal-as-text=t0,t3,t6"]
    rows = _rows(tmp_path, records, options, "hard", 3)
    _compare(server, "types", rows, read, lose)
