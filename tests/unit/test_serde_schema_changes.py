"""DDL and schema change events -> columns that have other names now."""

from __future__ import annotations

from typing import Any

import pytest

from serde.events.ddl import find_column_renames
from serde.events.schema_changes import ColumnNames, read_table_changes

STATEMENTS = [
    ("ALTER TABLE t RENAME COLUMN a TO b", [("a", "b")]),
    ("alter table `my db`.`t` rename column `a b` to `c``d`, rename column x to y", [("a b", "c`d"), ("x", "y")]),
    ("ALTER TABLE t CHANGE a b INT NOT NULL DEFAULT 3", [("a", "b")]),
    (
        "ALTER TABLE t CHANGE COLUMN IF EXISTS a b VARCHAR(3), DROP COLUMN c, CHANGE `d` `e` INT",
        [("a", "b"), ("d", "e")],
    ),
    ("ALTER TABLE t CHANGE a a BIGINT", []),
    ('ALTER TABLE "S"."T" RENAME COLUMN "Old" TO NEW_NAME', [("Old", "NEW_NAME")]),
    ("ALTER TABLE t /* RENAME COLUMN a TO b */ ADD c TEXT DEFAULT 'RENAME COLUMN a TO b' -- CHANGE a b", []),
    ("ALTER TABLE t RENAME COLUMN IF EXISTS a TO b, RENAME COLUMN IF EXISTS c TO `d`", [("a", "b"), ("c", "d")]),
    ("/*!50003 ALTER TABLE t */ /*M!100502 RENAME COLUMN a TO b */", [("a", "b")]),
    ("ALTER TABLE t RENAME TO u", []),
    ("ALTER TABLE t RENAME INDEX a TO b", []),
    ("ALTER TABLE t ADD COLUMN `change` INT AFTER `rename`", []),
    ("CREATE TABLE t (a INT COMMENT 'it''s')", []),
    ("RENAME TABLE t TO u", []),
    ("ALTER TABLE t CHANGE", []),
    ("ALTER TABLE t RENAME COLUMN a", []),
    ("", []),
]


@pytest.mark.parametrize(("ddl", "renames"), STATEMENTS)
def test_renames_are_read_from_statements(ddl: str, renames: list[tuple[str, str]]) -> None:
    """Columns that RENAME COLUMN and CHANGE give other names, quoted or not; nothing from texts and comments."""
    assert find_column_renames(ddl) == renames


def _event(ddl: str, *columns: str, table: str = '"shop"."t"') -> dict[str, Any]:
    listed = [{"name": name, "position": at} for at, name in enumerate(columns, 1)]
    return {"source": {"name": "p"}, "ddl": ddl, "tableChanges": [{"id": table, "table": {"columns": listed}}]}


def _names(*events: dict[str, Any]) -> ColumnNames:
    names = ColumnNames()
    for event in events:
        for change in read_table_changes(event):
            names.note(change)
    return names


def test_names_are_followed_from_one_to_the_next() -> None:
    """A column renamed twice has its last name by both earlier ones; new columns are seen and are nobody's rename."""
    names = _names(
        _event("CREATE TABLE t (a INT, b INT)", "a", "b"),
        _event("ALTER TABLE t RENAME COLUMN A TO c", "c", "b"),
        _event("ALTER TABLE t CHANGE c d BIGINT, ADD COLUMN e INT", "d", "b", "e"),
    )
    assert names.current == {"a": "d", "c": "d"}
    assert names.seen == {"a", "b", "c", "d", "e"}


def test_a_name_that_comes_back_is_not_followed() -> None:
    """Swapped names, and names of dropped columns, say nothing of which column an event means."""
    swapped = _names(
        _event("CREATE TABLE t (a INT, b INT)", "a", "b"),
        _event("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", "b", "a"),
    )
    again = _names(
        _event("CREATE TABLE t (a INT, b INT)", "a", "b"),
        _event("ALTER TABLE t DROP COLUMN b", "a"),
        _event("ALTER TABLE t RENAME COLUMN a TO b", "b"),
    )
    assert swapped.current == again.current == {}


def test_a_name_can_be_used_anew() -> None:
    """A column that takes the old name of another leaves that one's rename as it is."""
    names = _names(
        _event("CREATE TABLE t (a INT)", "a"),
        _event("ALTER TABLE t RENAME COLUMN a TO b", "b"),
        _event("ALTER TABLE t ADD COLUMN a TEXT", "b", "a"),
    )
    assert names.current == {"a": "b"}


def test_tables_are_known_by_their_topics() -> None:
    """Two parts are database and table; of three the first may be left out; odd letters are as in topics."""
    ids = {'"shop"."my table"': ("p.shop.my_table",), '"db"."dbo"."t"': ("p.db.dbo.t", "p.dbo.t")}
    for table, topics in ids.items():
        assert [change.topics for change in read_table_changes(_event("", "a", table=table))] == [topics]
    assert not list(read_table_changes({"status": "BEGIN", "id": "1"}))


def test_what_strangers_write_to_the_topic_is_no_change() -> None:
    """Events of any shape are passed over, and columns without a name: they tell nothing of a table."""
    source = {"name": "shop"}
    for changes in ("x", 7, ["x"], [None], {"id": "s.t"}):
        assert not list(read_table_changes({"source": source, "tableChanges": changes}))
    for table in (None, "x", {"columns": "x"}, {"columns": [None, {"type": "int"}]}):
        (change,) = read_table_changes({"source": source, "tableChanges": [{"id": "s.t", "table": table}]})
        assert change.columns == ()
