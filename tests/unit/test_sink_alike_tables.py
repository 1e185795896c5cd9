"""Tables that take changes in alike: their changes are converted at once, and what comes of it is the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from connector.iceberg.commit.kafka_offsets import Watermark
from connector.settings.iceberg.routing import RouteSettings
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode
from connector.sink.convert.messages import named_tables
from connector.sink.convert.routing import RoutedChanges, gather_alike
from connector.sink.model.change_rows import MASKS, ChangeBatch, ChangeOrder
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.truncate_scope import TruncateScope
from tests.unit.sink_plans import DATED, append, dead, plan, routing, rows, run, upsert

ROUTE = RouteSettings(dynamic=True, field="source.table")
NAMES = tuple(f"t{number}" for number in range(6))


def _event(table: str, key: int, number: int, op: str = "u", **more: Any) -> dict[str, Any]:
    row = {"id": key, "name": f"n{number}", "n": number, "region": "eu", **more}
    source = {"ts_ns": number * 1_000 + 1, "table": table, "db": "d", "name": "s", "lsn": number}
    return {"before": row if op == "d" else None, "after": None if op in "dt" else row, "op": op, "source": source}


def _tables(**more: Any) -> list[TablePlan]:
    return [upsert(index, DATED, ("id",), dated=True, **more) for index in range(len(NAMES))]


def _plan(tables: Sequence[TablePlan], **refused: str) -> BatchPlan:
    return plan(*tables, routing=routing(ROUTE, *NAMES[: len(tables)], **refused))


def _decode_by_table(events: Sequence[Any], keys: Sequence[Any], made: BatchPlan, patch: Any) -> DecodedRecords:
    def alone(routed: Sequence[RoutedChanges], *_: Any) -> Iterator[Sequence[RoutedChanges]]:
        yield from ([one] for one in routed)

    with patch.context() as context:
        context.setattr(named_tables, "gather_alike", alone)
        return decode(run(*events, keys=keys), made)


def _parts(decoded: DecodedRecords) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for index, part in zip(decoded.tables, decoded.parts, strict=True):
        found.setdefault(index, []).append(_content(part))
    return found


def _content(part: ChangeBatch) -> list[Any]:
    order = [getattr(part.order, field.name).tolist() for field in attrs.fields(ChangeOrder)]
    return [part.rows.to_pylist(), part.rows.schema, order, *(getattr(part, name).tolist() for name in MASKS)]


@pytest.mark.parametrize("seed", range(40))
def test_tables_at_once_are_as_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, order, faults, needs, truncates, progress and counts do not depend on tables being converted at once."""
    chance = random.Random(seed)
    tables = _tables(keep_deletes=chance.random() < 0.3)
    marks = {("t", 0): {"s.d.t1": Watermark(15_000, ()), "s.d.t2": Watermark(9_000, ())}}
    tables[1] = attrs.evolve(tables[1], watermarks=marks)
    tables[2] = attrs.evolve(tables[2], watermarks=marks, committed={("t", 0): 112})
    if chance.random() < 0.5:
        tables[3] = append(3, DATED)
    if chance.random() < 0.5:
        tables[::2] = [attrs.evolve(each, tombstones="skip") for each in tables[::2]]
    made = attrs.evolve(_plan(tables, **({"t5": "no"} if chance.random() < 0.3 else {})), evolve=chance.random() < 0.7)
    kinds: list[dict[str, Any]] = [{}] * 12 + [{"n": "no number"}, {"more": 1}, {"op": "t"}, {"op": "d"}, {"op": "c"}]
    if chance.random() < 0.4:
        kinds = kinds[:12]
    events: list[Any] = [
        _event(chance.choice((*NAMES, "unknown")), chance.randrange(9), number, **chance.choice(kinds))
        for number in range(chance.randrange(2, 40))
    ]
    keys: list[Any] = [{"id": each["after"]["id"]} if each["after"] else {"id": 1} for each in events]
    if chance.random() < 0.3:
        keys[chance.randrange(len(keys))] = None
    together, one_by_one = decode(run(*events, keys=keys), made), _decode_by_table(events, keys, made, monkeypatch)
    assert _parts(together) == _parts(one_by_one)
    assert dead(together) == dead(one_by_one)
    assert [(need.table, need.row) for need in together.needs] == [(one.table, one.row) for one in one_by_one.needs]
    assert together.truncates == one_by_one.truncates
    assert sorted(map(repr, together.progress)) == sorted(map(repr, one_by_one.progress))
    assert together.metrics == one_by_one.metrics


def test_each_row_has_its_own_key_when_all_records_are_converted_at_once() -> None:
    """Changes of alike tables come in another order than their records, and keys are those of the records."""
    events = [_event(NAMES[number % 3], number, number) for number in range(12)]
    for event in events:
        event["after"].pop("id")
    decoded = decode(run(*events, keys=[{"id": number} for number in range(12)]), _plan(_tables()))
    assert [row["id"] for row in rows(decoded, 1)] == [1, 4, 7, 10]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The tables that were converted together, as they are."""
    found = list[list[str]]()

    def note(*arguments: Any) -> Iterator[Sequence[RoutedChanges]]:
        for group in gather_alike(*arguments):
            found.append([one.table for one in group])
            yield group

    monkeypatch.setattr(named_tables, "gather_alike", note)
    return found


def test_a_refused_table_does_not_part_those_that_are_alike(groups: list[list[str]]) -> None:
    """Tables that come before it and behind it are converted together."""
    events = [_event(NAMES[number], number, number) for number in range(6)]
    decoded = decode(run(*events, keys=[{"id": number} for number in range(6)]), _plan(_tables(), t2="no"))
    assert sorted(groups) == [["t0", "t1", "t3", "t4", "t5"], ["t2"]]
    assert [row["id"] for row in rows(decoded, 5)] == [5]


def test_tables_of_two_shapes_are_two_groups(groups: list[list[str]]) -> None:
    """Whatever the order in which tables first come, those that are alike are converted together."""
    tables = _tables()
    tables[1::2] = [attrs.evolve(each, tombstones="skip") for each in tables[1::2]]
    events = [_event(NAMES[number % 6], number, number) for number in range(18)]
    decoded = decode(run(*events, keys=[{"id": number} for number in range(18)]), _plan(tables))
    assert groups == [["t0", "t2", "t4"], ["t1", "t3", "t5"]]
    assert {index: [row["id"] for row in rows(decoded, index)] for index in range(6)} == {
        index: [index, index + 6, index + 12] for index in range(6)
    }


def _groups(tables: Sequence[TablePlan], **refused: str) -> list[list[str]]:
    made = _plan(tables, **refused)
    routed = [RoutedChanges(name, ordered, at, at + 1) for ordered in [_SomeChanges()] for at, name in enumerate(NAMES)]
    assert made.routing is not None
    return [[one.table for one in group] for group in gather_alike(routed, made, made.routing)]


class _SomeChanges:
    """Stands for changes that nobody looks into."""

    rows = np.arange(len(NAMES))


def test_alike_are_tables_of_one_shape_and_settings() -> None:
    """Another schema, setting, a truncate, and a table that is refused or unknown end a group."""
    tables = _tables()
    assert _groups(tables) == [list(NAMES)]
    tables[1] = attrs.evolve(tables[1], committed={("t", 0): 7}, base=4, buckets=3)
    assert _groups(tables) == [list(NAMES)]
    tables[2] = upsert(2, {**DATED, "more": DATED["n"]}, ("id",), dated=True)
    tables[4] = attrs.evolve(tables[4], tombstones="skip")
    assert _groups(tables) == [["t0", "t1"], ["t2"], ["t3"], ["t4"], ["t5"]]
    cut = [attrs.evolve(each, truncated=TruncateScope(refused=frozenset("x"))) for each in _tables()]
    assert _groups(cut) == [[name] for name in NAMES]
    assert _groups(_tables(), t1="no") == [["t0"], ["t1"], ["t2", "t3", "t4", "t5"]]
    assert _groups(_tables()[:5]) == [["t0", "t1", "t2", "t3", "t4"], ["t5"]]
