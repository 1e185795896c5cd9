"""What a source decides without Spark: descriptions of schemas, topics, times, stored positions."""

from __future__ import annotations

from typing import Any

import pytest

from connector.errors import FatalError
from connector.source import describe
from connector.source.decide import Position, Progress
from connector.source.standing import Standing
from connector.source.wire import stamp
from serde.emit.forms import Modes
from serde.emit.kinds import Items, Member, Pairs, Plain, Record


def field(name: str, kind: Any, *, required: bool = False) -> dict[str, Any]:
    return {"id": 1, "name": name, "type": kind, "required": required}


SCHEMA = {
    "type": "struct",
    "fields": [
        field("id", "long", required=True),
        field("amount", "decimal(9, 2)"),
        field("raw", "fixed[16]"),
        field("list", {"type": "list", "element-id": 2, "element": "timestamptz_ns", "element-required": True}),
        field(
            "map",
            {"type": "map", "key-id": 3, "key": "int", "value-id": 4, "value": "variant", "value-required": False},
        ),
        field("inner", {"type": "struct", "fields": [field("code", "string", required=True)]}),
        field("inner.code", "int"),
        field("shape", "geometry(srid:4326)"),
    ],
}


def test_every_type_is_described() -> None:
    """Parameters, nesting and optionality of Iceberg's JSON all arrive in the description."""
    assert describe.record(SCHEMA) == Record(
        (
            Member("id", Plain("long"), False),
            Member("amount", Plain("decimal", 9, 2)),
            Member("raw", Plain("fixed")),
            Member("list", Items(Plain("timestamptz_ns"), False)),
            Member("map", Pairs(Plain("int"), Plain("variant"))),
            Member("inner", Record((Member("code", Plain("string"), False),))),
            Member("inner.code", Plain("int")),
            Member("shape", Plain("geometry")),
        )
    )


def test_a_key_is_found_inside_structs() -> None:
    """A dotted key column is a field of a struct, unless a column has that very name."""
    row = describe.record(SCHEMA)
    assert describe.key(row, ("id", "inner.code")).paths == (("id",), ("inner.code",))
    without = Record(row.members[:-2])
    made = describe.key(without, ("inner.code",))
    assert made.paths == (("inner", "code"),)
    assert made.record.members == (Member("inner.code", Plain("string"), False),)


def test_a_column_without_form_is_named() -> None:
    """A column that no Debezium type fits stops its table, with its name and the way out."""
    with pytest.raises(FatalError, match=r"table a\.b: .*shape \(geometry\).*column\.exclude\.list"):
        describe.check("a.b", describe.record(SCHEMA), Modes())


@pytest.mark.parametrize(
    ("ms", "before", "expected"),
    [(5, None, 5_000_000), (5, 4_999_999, 5_000_000), (5, 5_000_000, 5_000_001), (5, 7_000_000, 7_000_001)],
)
def test_times_of_snapshots_only_grow(ms: int, before: int | None, expected: int) -> None:
    """Two snapshots of one millisecond, or one that is dated back, still have rising event times."""
    assert stamp(ms, before) == expected


@pytest.mark.parametrize("reading", [None, Progress(5, 3, 1000)])
def test_a_standing_is_read_back(reading: Progress | None) -> None:
    """What is stored of a table's position is what is read."""
    standing = Standing(Position("u", 1, reading), 3)
    assert Standing.parse(standing.json()) == standing
