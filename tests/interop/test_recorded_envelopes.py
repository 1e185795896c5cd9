"""recorded envelopes -> Connect worker, with and without Debezium's transform -> PostgreSQL's recorded state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.clients.topics import Topics
from tests.interop.conftest import Replicate
from tests.interop.connect import ConnectorFailed
from tests.interop.jdbc_sink import UNWRAP
from tests.interop.postgres import Postgres
from tests.model import recordings
from tests.model.truth import KeyValues, key_of

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.timeout(900)]

VARIANT = "json_schema_envelope"
TABLES = ("customers", "order_lines", "full_pk", "uuid_key")
ROUTES: Mapping[str, Mapping[str, str]] = {"envelope": {}, "unwrapped": UNWRAP}
# Debezium writes them as text where the schema says double: Kafka's JsonConverter reads a double that is text as 0.
NOT_IN_JSON = {"NaN", "Infinity", "-Infinity"}
CUSTOMERS = {
    "id": "integer",
    "name": "text",
    "email": "text",
    "balance": "numeric(10,2)",
    "created": "timestamp(6) with time zone",
    "updated": "timestamp(6) without time zone",
    "birth": "date",
    "wake": "time(6) without time zone",
    "active": "boolean",
    "score": "double precision",
    "uid": "uuid",
    "meta": "json",
    "tags": "text[]",
    "avatar": "bytea",
    "mood": "text",
    "note": "text",
}
Row = Mapping[str, Any]


@pytest.fixture(scope="module")
def recorded(topics: Topics) -> None:
    """Every recorded topic, partition by partition as recorded."""
    topics.replay(record for table in TABLES for record in recordings.load(VARIANT, table))


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("route", ROUTES)
def test_recorded_changes_arrive(replicate: Replicate, postgres: Postgres, route: str) -> None:
    """Inserts, updates, deletes and key changes of real envelopes give the tables they came from, deleted rows gone."""
    made = replicate(route, [recordings.topic(VARIANT, table) for table in TABLES], ROUTES[route])
    found = {table: keyed(table, postgres.rows(made[recordings.topic(VARIANT, table)])) for table in TABLES}
    assert found == {table: keyed(table, map(as_connect_reads, recordings.state(table))) for table in TABLES}
    assert postgres.types(made[recordings.topic(VARIANT, "customers")]) == CUSTOMERS


@pytest.mark.usefixtures("recorded")
def test_a_failing_sink_is_told_with_its_trace(replicate: Replicate) -> None:
    """A sink that may not make the table it lacks ends the wait at once, with the trace of its task."""
    with pytest.raises(ConnectorFailed, match=r"(?s)connector failing, task 0:.*failing_js_public_full_pk"):
        replicate("failing", [recordings.topic(VARIANT, "full_pk")], {"schema.evolution": "none"})


def keyed(table: str, rows: Iterable[Row]) -> dict[KeyValues, Row]:
    """The rows by their key, which PostgreSQL holds unique in the tables that the sink makes."""
    return {key_of(table, row): row for row in rows}


def as_connect_reads(row: Row) -> Row:
    """The row as it is behind Kafka's JsonConverter."""
    return {name: 0 if isinstance(value, str) and value in NOT_IN_JSON else value for name, value in row.items()}
