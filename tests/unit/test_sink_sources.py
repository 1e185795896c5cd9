"""Truncates of a table that takes several sources: whose rows go."""

from __future__ import annotations

from typing import Any

import attrs
import orjson
import pyarrow as pa
import pytest

from connector.iceberg.commit.kafka_offsets import ALL_SOURCES, LastTruncate, Watermark
from connector.settings import EventSettings
from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoder import decode
from connector.sink.fold.watermarks import find_limits
from connector.sink.model.plan import TablePlan
from connector.sink.model.truncate_scope import (
    SourceRows,
    TableSources,
    TruncateScope,
    find_source_columns,
    scope_truncates,
)
from connector.sink.model.truncates import Truncate
from tests.unit.sink_plans import DATED, dead, plan, routing, rows, run, upsert

X, Y = "srv.db.public.x", "srv.db.public.y"
ALL = ("id", "__table", "__db", "__schema")


def truncate(source: str = X, ts_ns: int = 100) -> Truncate:
    """A truncate event of a source."""
    return Truncate("t", 0, 10, ts_ns, source=source, table=0)


def known(
    *names: str, topics: tuple[str, ...] = ("shared",), all_known: bool = True, routed: bool = False
) -> TableSources:
    """What is known of a table's sources."""
    return TableSources(frozenset(names), frozenset(topics), all_known, routed)


@pytest.mark.parametrize(
    ("sources", "columns", "expected"),
    [
        (known(X), (), "whole"),
        (known(X, topics=("srv.public.x",), all_known=False), (), "whole"),
        (known(X, topics=("srv.x",), all_known=False), (), "whole"),
        (known(X, "srv.db.x"), (), "refused"),
        (known(X, "srv.db.x", topics=("srv.public.x",)), (), "whole"),
        (known(X, "srv.db.x", Y), ("__table", "__db"), "refused"),
        (known(X, "srv.db.x", Y), ALL, "rows"),
        (known(X, all_known=False), (), "refused"),
        (known(X, topics=("srv.public.x",), all_known=False, routed=True), (), "refused"),
        (known(X, topics=("srv.public.x", "srv.public.y")), (), "refused"),
        (known(X, Y), ("__db",), "refused"),
        (known(X, Y), ("__table",), "rows"),
        (known(X, "srv.db.other.x"), ("__table", "__db"), "refused"),
        (known(X, "srv.db.other.x"), ("__schema",), "rows"),
        (known(X, Y, all_known=False), ("__table", "__db"), "refused"),
        (known(X, Y, all_known=False), ALL, "rows"),
        (known(X, "*"), ("__table", "__db"), "refused"),
        (known(X, "*"), ALL, "rows"),
        (known("srv.db.x", "srv.db.y", all_known=False), ("__table", "__db"), "rows"),
    ],
)
def test_whose_rows_go(sources: TableSources, columns: tuple[str, ...], expected: str) -> None:
    """All of a table that is its source's alone; of another the rows that columns tell apart, else none."""
    source = X if X in sources.names else "srv.db.x"
    scope = scope_truncates([truncate(source)], sources, columns, "__")
    found = "whole" if scope.whole else "rows" if scope.of_sources else "refused"
    assert (found, scope.refused) == (expected, frozenset({source}) if expected == "refused" else frozenset())


def test_columns_of_the_source_tell_nothing() -> None:
    """A column of a customer's name is no server's, whatever unwrapping puts before the names of what it adds."""
    columns = ("id", "name", "db", "schema", "table")
    assert find_source_columns(columns, ("op", "db", "table", "source.schema:s"), "") == {"db", "table"}
    assert find_source_columns(("__db", "db", "name"), ("db", "name:n"), "__") == {"__db"}


def test_values_are_those_of_the_columns() -> None:
    """Each truncated source has its own moment, and the values of its rows' columns."""
    scope = scope_truncates([truncate(X, 100), truncate(Y, 200), truncate(X, 150)], known(X, Y), ALL, "__")
    assert {name: cut.ts_ns for name, (cut, _) in scope.of_sources.items()} == {X: 150, Y: 200}
    assert scope.of_sources[Y][1] == SourceRows((("__db", "db"), ("__schema", "public"), ("__table", "y")))


def _event(table: str, number: int, op: str = "c") -> bytes:
    source = {"name": "srv", "db": "db", "schema": "public", "table": table, "ts_ns": number}
    after: dict[str, Any] | None = {"id": number, "name": table} if op == "c" else None
    return orjson.dumps({"before": None, "after": after, "source": source, "op": op})


def test_rows_of_others_stay() -> None:
    """Of one source rows from before its truncate go, whatever others the run holds; a refused one is a dead letter."""
    values = [_event("x", 1), _event("y", 2), _event("x", 3, "t"), _event("x", 4), _event("y", 5)]
    keys = [{"id": 1}, {"id": 2}, None, {"id": 4}, {"id": 5}]
    table = upsert(0, DATED, ("id",))
    outcome = decode(run(*values, keys=keys), plan(table))
    assert [each.source for each in outcome.truncates] == [X]
    scope = scope_truncates(outcome.truncates, known(X, Y), ("__table",), "__")
    outcome = decode(run(*values, keys=keys), plan(upsert(0, DATED, ("id",), truncated=scope)))
    assert [row["id"] for row in rows(outcome)] == [2, 4, 5]
    refused = upsert(0, DATED, ("id",), truncated=TruncateScope(refused=frozenset({X})))
    outcome = decode(run(*values, keys=keys), plan(refused))
    assert [row["id"] for row in rows(outcome)] == [1, 2, 4, 5]
    assert list(dead(outcome)) == [2]
    assert not outcome.truncates


def _decoded(table: TablePlan, *events: bytes) -> list[tuple[int, bool]]:
    keys = [{"id": orjson.loads(event)["source"]["ts_ns"]} for event in events]
    outcome = decode(run(*events, keys=keys), plan(table))
    return [
        (int(offset) - 99, bool(gone))
        for part in outcome.parts
        for offset, gone in zip(part.order.offset, part.truncated, strict=True)
    ]


@pytest.mark.parametrize("dated", [True, False])
def test_a_truncate_is_remembered_with_its_source(dated: bool) -> None:
    """In later batches what is older than the last truncate of its own source is left out; a delete stays, marked, as
    its tombstone tells no time. What earlier versions noted without a name holds for sources known by then.
    """
    events = [_event(*each) for each in (("x", 1), ("y", 2), ("x", 3, "d"), ("x", 4), ("y", 5), ("x", 8))]
    for truncates, left in (
        ({}, [(n, False) for n in range(1, 7)]),
        ({X: LastTruncate(5)}, [(2, False), (3, True), (5, False), (6, False)]),
        ({Y: LastTruncate(4)}, [(1, False), (3, False), (4, False), (5, False), (6, False)]),
        ({ALL_SOURCES: LastTruncate(5)}, [(2, False), (3, True), (5, False), (6, False)]),
        ({ALL_SOURCES: LastTruncate(9), X: LastTruncate(2)}, [(n, False) for n in range(2, 7)]),
    ):
        table = upsert(0, DATED, ("id",), dated=dated, watermarks={("t", 0): {X: Watermark()}}, truncates=truncates)
        assert _decoded(table, *events) == left, truncates
    for what in ({"upsert": False}, {"history": True}):
        table = upsert(0, {**DATED, "valid_from": pa.timestamp("us")}, ("id",), truncates={X: LastTruncate(5)})
        assert len(_decoded(attrs.evolve(table, **what), *events)) == 6 - ("upsert" in what), what


def test_a_truncate_that_comes_again_is_its_sources_own() -> None:
    """Only an older one of the same source counts as repeated."""
    events = [_event("x", 3, "t"), _event("y", 3, "t")]
    table = upsert(0, DATED, ("id",), truncates={X: LastTruncate(5)})
    assert [each.source for each in decode(run(*events), plan(table)).truncates] == [Y]


def test_truncates_find_the_tables_that_their_events_name() -> None:
    """Where a field of the row decides, a truncate, which has no row, is told by the fields that unwrapping adds."""
    columns = {**DATED, **dict.fromkeys(("__op", "__table", "__db"), pa.string())}
    routes = routing(RouteSettings(field="__db", tables=(("all", "db"),)), "all")
    settings = EventSettings("auto", "auto", ("op", "table", "source.ts_ns", "db"), "__")
    found = decode(
        run(_event("x", 1), _event("x", 2, "t"), keys=[{"id": 1}, None]),
        plan(upsert(0, columns, ("id",)), routing=routes, events=settings),
    )
    assert [(each.source, each.table) for each in found.truncates] == [(X, 0)]
    assert found.metrics.ignored == 0


def test_watermarks_of_earlier_versions_count() -> None:
    """Names of sources had no schema: what was known under such a name still tells what may be late."""
    at = ("t", 0)
    for known, found in (
        ({"srv.db.x": Watermark(7)}, [Watermark(7), Watermark()]),
        ({"srv.db.x": Watermark(7), X: Watermark(4)}, [Watermark(4), Watermark()]),
    ):
        assert find_limits({at: known}, at, [X, "srv.db.public.z"]) == found
    assert find_limits({at: {"srv.db.x": Watermark(7)}}, at, ["srv.db.x @1/bin"]) == [Watermark(7)]
