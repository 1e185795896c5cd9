"""Routing by field: whatever the events say, each is in exactly the tables of a plain reading of the rule, in order."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoder import decode
from tests.harness.rounds import draws
from tests.unit.sink_plans import append, dead, plan, routing, rows, run

COLUMNS = {"id": pa.int64(), "kind": pa.string()}
NAMES = ("a.one", "a.two", "three")
VALUES = st.lists(st.sampled_from([*NAMES, "A.One", "THREE", "b.none", "", ".", "a.", None, "ab", "abc"]), max_size=40)


@given(VALUES)
@settings(max_examples=draws(60))
def test_dynamic_routing_is_the_lower_case_of_the_value(values: list[str | None]) -> None:
    """Each event is in the table that its value names, or dead: for no table by name, or for a refused one."""
    events = [{"id": i, "kind": value} for i, value in enumerate(values)]
    tables = [append(i, COLUMNS) for i, _ in enumerate(NAMES)]
    known = routing(RouteSettings("kind", dynamic=True), *NAMES, **dict.fromkeys(("b.none", "ab", "abc"), "none"))
    outcome = decode(run(*events), plan(*tables, routing=known))
    for index, name in enumerate(NAMES):
        assert [row["id"] for row in rows(outcome, index)] == [
            i for i, v in enumerate(values) if (v or "").lower() == name
        ]
    assert set(dead(outcome)) == {i for i, v in enumerate(values) if (v or "").lower() not in NAMES}


@given(VALUES, st.tuples(*[st.sampled_from(["a.*", "ab?", "[a-c]+", "x"]) for _ in NAMES]))
@settings(max_examples=draws(60))
def test_static_routing_is_a_full_match(values: list[str | None], patterns: tuple[str, ...]) -> None:
    """Each event is in every table whose expression fits the whole value, and in no other; none is dead."""
    events = [{"id": i, "kind": value} for i, value in enumerate(values)]
    tables = [append(i, COLUMNS) for i, _ in enumerate(NAMES)]
    rule = RouteSettings("kind", tuple(zip(NAMES, patterns, strict=True)))
    outcome = decode(run(*events), plan(*tables, routing=routing(rule, *NAMES)))
    for index, pattern in enumerate(patterns):
        fits = [i for i, v in enumerate(values) if v is not None and re.fullmatch(pattern, v)]
        assert [row["id"] for row in rows(outcome, index)] == fits
    assert not outcome.faults
    unwanted = [v for v in values if v is None or not any(re.fullmatch(pattern, v) for pattern in patterns)]
    assert outcome.metrics.ignored == len(unwanted)
