"""How tables are written, and on which branch: what the keys say together."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from connector.errors import ConfigError
from connector.settings import load

GOOD = {"bootstrap.servers": "localhost:9092", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
MODE, UPSERT = "debezium.sink.iceberg.write-mode", "debezium.sink.iceberg.upsert"
CONNECT = {"connector.class": "org.apache.iceberg.connect.IcebergSinkConnector", "iceberg.tables": "a.b"}


@pytest.mark.parametrize(
    ("given", "mode", "upsert"),
    [
        ({}, "equality-delete", True),
        ({UPSERT: "false"}, "append", False),
        ({MODE: "append"}, "append", False),
        ({MODE: "position-delete"}, "position-delete", True),
        ({MODE: "copy-on-write", UPSERT: "true"}, "copy-on-write", True),
        ({**CONNECT}, "append", False),
        ({**CONNECT, MODE: "copy-on-write"}, "copy-on-write", True),
        ({UPSERT: "false", "iceberg.table.a.b.write-mode": "position-delete"}, "append", True),
        ({"primary.key.mode": "none", MODE: "position-delete"}, "position-delete", False),
    ],
)
def test_upsert_is_a_way_to_say_the_mode(given: dict[str, str], mode: str, upsert: bool) -> None:
    """Without a write mode `upsert` decides between equality deletes and append; another mode of any table upserts."""
    table = load([], GOOD | given, {}).table
    assert (table.writes.mode, table.upsert) == (mode, upsert)


def test_single_tables_have_their_own_mode_and_branch() -> None:
    """What is given for a table, by its name with or without namespace, wins over what is given for all."""
    given = {
        MODE: "position-delete",
        "iceberg.table.a.write-mode": "append",
        "iceberg.tables.default-commit-branch": "audit",
        "iceberg.table.shop.b.commit-branch": "staging",
    }
    rule = load([], GOOD | given, {}).table.writes
    assert [rule.mode_of(name, f"shop.{name}") for name in "ab"] == ["append", "position-delete"]
    assert [rule.branch_of(name, f"shop.{name}") for name in "ab"] == ["audit", "staging"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({MODE: "merge-on-read"}, "position-delete"),
        ({MODE: "position-delete", UPSERT: "false"}, "contradicts it"),
        ({MODE: "append", UPSERT: "true"}, "contradicts it"),
        ({"iceberg.table.a.b.write-mode": "fast"}, "not known"),
        ({"spark.wap.id": "x"}, "default-commit-branch"),
        ({"spark.wap.branch": "x"}, "default-commit-branch"),
    ],
)
def test_what_cannot_be_is_one_fault(given: dict[str, str], says: str) -> None:
    """An unknown mode, two keys that contradict each other, and staged snapshots are refused with what to do."""
    with pytest.raises(ConfigError) as caught:
        load([], GOOD | given, {})
    (fault,) = caught.value.faults
    assert says in fault


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({UPSERT: "false"}, True),
        ({"iceberg.table.a.t.write-mode": "append"}, True),
        ({UPSERT: "false", "iceberg.table.t.write-mode": "copy-on-write"}, False),
        ({}, False),
    ],
)
def test_a_table_that_is_appended_to_has_no_history(given: dict[str, str], refused: bool) -> None:
    """Who asks for it, of one table as of all, is told that nothing would come of it."""
    told = pytest.raises(ConfigError, match=r"is appended to; set iceberg\.table\.a\.t\.write-mode")
    with told if refused else nullcontext():
        load([], GOOD | given | {"iceberg.table.a.t.scd-type": "2"}, {})


@pytest.mark.parametrize("key", ["write-mode", "scd-type", "commit-branch"])
def test_an_empty_option_of_a_table_is_none(key: str) -> None:
    """What is said of all tables counts, as where the key is not there."""
    given = {MODE: "copy-on-write", "debezium.sink.iceberg.scd-type": "2", "iceberg.tables.default-commit-branch": "b"}
    expected = load([], GOOD | given, {}).table.writes
    assert load([], GOOD | given | {f"iceberg.table.t.{key}": ""}, {}).table.writes == expected


KC = {"connector.class": "org.apache.iceberg.connect.IcebergSinkConnector", "iceberg.tables": "a.t"}
ADDS, MAKES = "debezium.sink.iceberg.allow-field-addition", "iceberg.tables.auto-create-enabled"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, (True, True, False)),
        ({ADDS: "false"}, (True, False, False)),
        ({"schema.evolution": "basic"}, (True, True, False)),
        ({"schema.evolution": "BASIC", ADDS: "true", **KC}, (True, True, False)),
        ({"schema.evolution": "none"}, (False, False, False)),
        ({"schema.evolution": "validate-only", MAKES: "false"}, (False, False, True)),
    ],
)
def test_names_of_the_jdbc_sink_for_what_tables_lack(given: dict[str, str], wanted: tuple[bool, ...]) -> None:
    """Its one key says what two of ours say, and besides that a column that lacks is a stop."""
    table = load([], GOOD | given, {}).table
    assert (table.auto_create, table.allow_field_addition, table.requires_fields) == wanted


@pytest.mark.parametrize("given", [{ADDS: "false"}, {MAKES: "false"}])
def test_two_keys_that_contradict_each_other_about_columns_are_refused(given: dict[str, str]) -> None:
    """Which of them was meant nobody knows."""
    with pytest.raises(ConfigError, match=r"contradicts schema\.evolution=basic; take one of them out"):
        load([], GOOD | given | {"schema.evolution": "basic"}, {})
