"""Flattened events without their place in the source's log -> what their dates prove, and what a user is told."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode
from connector.sink.fold.fold import fold
from connector.sink.microbatch.batch_log import BatchLog
from serde.events.flattened_order import ORDER_FIELDS
from serde.events.positions.log_positions import NO_VALUE
from tests.unit.sink_plans import DATED, append, plan, run, upsert

TABLE = upsert(0, DATED, ("id",), dated=True)
NOON = 1_700_000_000_001_000_000
PLACES: dict[str, dict[str, Any]] = {
    "postgresql": {"source_lsn": 9},
    "mysql": {"source_server_id": 1, "source_file": "bin.000001", "source_pos": 4},
    "mariadb": {"source_gtid": "0-1-9"},
    "sqlserver": {"source_commit_lsn": "00000027:00000ac0:0002"},
    "oracle": {"source_commit_scn": "999", "source_scn": "98"},
    "db2": {"source_commit_lsn": "00000000:00000000:0000000000043e14", "source_change_lsn": None},
    "informix": {"source_commit_lsn": "627404540760620", "source_change_lsn": "627404540485812"},
    "vitess": {"transaction_transaction_epoch": 0, "transaction_transaction_rank": 3, "source_shard": "-80"},
}


def _event(n: int, op: str = "u", **told: Any) -> dict[str, Any]:
    added = {"op": op, "deleted": "false", "source_ts_ns": NOON - n, **told}
    return {"id": 1, "name": "x", "n": n, "region": None, **{f"__{name}": value for name, value in added.items()}}


def _decoded(*events: dict[str, Any], connector: str | None = None) -> DecodedRecords:
    records = run(*events, keys=[{"id": 1}] * len(events))
    return decode(attrs.evolve(records, connector=connector), plan(TABLE, evolve=False))


@pytest.mark.parametrize("connector", ["sqlserver", "informix", "mongodb"])
@pytest.mark.parametrize("field", [None, "source_connector", "connector"])
def test_dates_that_do_not_rise_with_the_log_prove_nothing(connector: str, field: str | None) -> None:
    """The header or an added field names such a connector: the later change wins, though its date is an earlier one."""
    told = {} if field is None else {field: connector}
    made = _decoded(_event(0, **told), _event(5, **told), connector=connector if field is None else None)
    (part,) = made.parts
    assert part.order.date.tolist() == [NO_VALUE] * 2
    (winner,) = fold([part], ("id",)).winners
    assert part.rows.column("n")[int(winner)].as_py() == 5


def test_dates_of_other_connectors_count() -> None:
    """Of PostgreSQL a smaller date is that of a change that comes again."""
    (part,) = _decoded(_event(0), _event(5), connector="postgresql").parts
    assert part.order.date.tolist() == [NOON, NOON - 5]


@pytest.mark.parametrize("connector", ORDER_FIELDS)
def test_connectors_are_named_whose_events_could_tell_their_place(connector: str) -> None:
    """Without the fields each is named; with them, and for reads, nothing is."""
    assert _decoded(_event(0), connector=connector).metrics.unplaced == {connector}
    assert _decoded(_event(0, "r"), connector=connector).metrics.unplaced == frozenset()
    assert _decoded(_event(0, **PLACES[connector]), connector=connector).metrics.unplaced == frozenset()
    terms = {term.replace(".", "_") for term in ORDER_FIELDS[connector].split(",")}
    assert PLACES[connector].keys() <= terms


@pytest.mark.parametrize(("connector", "field"), [("mysql", "source_server_id"), ("vitess", "source_shard")])
def test_a_place_in_nobodys_log_is_none(connector: str, field: str) -> None:
    """Files of two servers, and transactions of two shards, do not compare: nothing is told without whose they are."""
    told = {name: value for name, value in PLACES[connector].items() if name != field}
    made = _decoded(_event(0, **told), connector=connector)
    assert made.parts[0].order.place[:, 1].tolist() == [NO_VALUE]
    assert made.metrics.unplaced == {connector}


def test_others_are_not_named() -> None:
    """Events that nobody names are "unnamed"; connectors without places, rows of no transform, and appends nothing."""
    assert _decoded(_event(0)).metrics.unplaced == {"unnamed"}
    assert _decoded(_event(0), connector="cassandra").metrics.unplaced == frozenset()
    bare = {name: value for name, value in _event(0).items() if name != "__deleted"}
    assert _decoded(bare, connector="mysql").metrics.unplaced == frozenset()
    appended = decode(attrs.evolve(run(_event(0)), connector="mysql"), plan(append(0, DATED), upserts=False))
    assert appended.metrics.unplaced == frozenset()


def test_each_connector_is_logged_once_with_its_fields() -> None:
    """The note names what to add to add.fields; of unnamed connectors it names the page."""
    log = BatchLog()
    with capture_logs() as logs:
        for names in ({"sqlserver"}, {"sqlserver", "unnamed"}, {"unnamed"}):
            log.log_outcome(TaskMetrics(unplaced=frozenset(names)), ())
    told = [(entry["connector"], entry["add_fields"]) for entry in logs]
    assert told == [("sqlserver", "source.commit_lsn"), ("unnamed", "by connector: docs/reference/databases.md")]
