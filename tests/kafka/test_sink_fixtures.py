"""recorded Debezium events -> broker -> sink -> tables that equal PostgreSQL's: every table of every JSON variant.

All variants of one mode run in one process of the sink: one stream, several topics, several tables.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake, Replay
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.model import recordings, reference, truth, values
from tests.runs.processes import Run, Workspace

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(400)]

Cases = list[tuple[str, str]]
# The variants of which the other modes read every topic; of the others they read the tables in `recordings.TABLES`.
WHOLE = ("json_schema_envelope", "json_envelope", "json_unwrap_rewrite")
SOFT = ("Weird_Table", "defaults_t", "toasty")
NAMED = ("exotic", "toasty", "Weird_Table")


def _of(every: Cases, few: Cases) -> tuple[Cases, pytest.MarkDecorator]:
    """What is read, and the tests of it: in `make test` each table in one variant."""
    return every if THOROUGH else few, pytest.mark.parametrize(("variant", "table"), tiered(every, few))


KEYED, ALL = _of(
    [(v, t) for v in recordings.ALL_VARIANTS for t in recordings.tables(v)], recordings.diagonal(recordings.KEYED)
)
PLAIN, CASES = _of(list(product(recordings.ALL_VARIANTS, recordings.TABLES)), recordings.diagonal(recordings.TABLES, 4))
SOFTENED, LIVE = _of(list(product(WHOLE, SOFT)), list(zip(WHOLE, SOFT, strict=True)))
WEIRD = list(product(WHOLE, NAMED)) if THOROUGH else [(WHOLE[0], name) for name in NAMED]
KEYLESS = list(recordings.ALL_VARIANTS)
KEYLESS_FEW = KEYLESS[::4]
# Values with a schema block that Iceberg's types have no room for: time 24:00:00, infinity (exotic, key 1), years
# before Christ (key 3). `temporal-as-text` keeps them.
UNREPRESENTABLE = {(b"js.public.exotic", b"2", offset) for offset in (b"0", b"2", b"3")}
Result = tuple[Run, Lake, Workspace]


@pytest.fixture(scope="module")
def hard(recorded: Replay, make_workspace: MakeWorkspace, lake: OpenLake) -> Result:
    """Deleted rows go; columns whose values Iceberg's types have no room for are text."""
    extra = {"debezium.sink.iceberg.upsert-keep-deletes": "false", "truncate.enabled": "true"}
    extra |= {"debezium.sink.iceberg.temporal-as-text": ",".join(truth.AS_TEXT)}
    return _run(recorded, make_workspace, lake, "hard", [*KEYED, ("json_schema_envelope", "customers")], extra)


@pytest.fixture(scope="module")
def soft(recorded: Replay, make_workspace: MakeWorkspace, lake: OpenLake) -> Result:
    """Deleted rows stay, marked: the default."""
    return _run(recorded, make_workspace, lake, "soft", [*PLAIN, *SOFTENED], {})


@pytest.fixture(scope="module")
def append(recorded: Replay, make_workspace: MakeWorkspace, lake: OpenLake) -> Result:
    """Every event is a row; here the topics without row events are read too."""
    others = product(KEYLESS if THOROUGH else KEYLESS_FEW, recordings.OTHERS)
    extra = {"debezium.sink.iceberg.upsert": "false"}
    return _run(recorded, make_workspace, lake, "append", [*PLAIN, *others, *WEIRD], extra)


def _run(
    recorded: Replay, make_workspace: MakeWorkspace, lake: OpenLake, name: str, cases: Cases, extra: dict[str, str]
) -> Result:
    space = make_workspace(name, {"topics": ",".join(recorded(cases)), **extra})
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    return run, lake(space), space


def _table(variant: str, table: str) -> str:
    return recordings.topic(variant, table).replace(".", "_")


def _loosened(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """evolve.c was text before it became a number: the column stays text and holds the number's digits."""
    value = row.get("c")
    return {**row, "c": str(value)} if table == "evolve" and isinstance(value, int) else row


@ALL
def test_hard_delete_ends_in_the_recorded_state(hard: Result, variant: str, table: str) -> None:
    """A replayed recording ends in PostgreSQL's recorded rows, deleted rows gone."""
    assert truth.faults(variant, table, hard[1].rows(_table(variant, table))) == []


@CASES
def test_soft_delete_keeps_the_deleted_rows_marked(soft: Result, variant: str, table: str) -> None:
    """With deletes kept the table is the hard one and a row marked `__deleted` for each deleted key."""
    expected = reference.upsert(recordings.load(variant, table), keep_deletes=True)
    bare = {tuple(dict(key)[c] for c in truth.KEYS[table]) for key in expected.bare}
    rows = soft[1].rows(_table(variant, table))
    rest = [r for r in rows if truth.key_of(table, r) not in bare]
    wanted = [_loosened(table, r) for r in expected.rows.values()]
    assert values.differences(wanted, rest, typed=variant in truth.TYPED) == []
    # A tombstone that no delete event came before names only a key: what the row was may stay, alive it must not look.
    assert {r.get("__deleted") for r in rows if truth.key_of(table, r) in bare} <= {"true"}


@LIVE
def test_live_rows_do_not_depend_on_kept_deletes(soft: Result, variant: str, table: str) -> None:
    """With deletes kept the rows that are not marked are PostgreSQL's, values that were not sent included."""
    rows = [r for r in soft[1].rows(_table(variant, table)) if r["__deleted"] != "true"]
    assert truth.faults(variant, table, rows) == []


@CASES
def test_append_keeps_every_event(append: Result, variant: str, table: str) -> None:
    """In append mode each event is one row, exactly once, and a tombstone is none."""
    expected = [_loosened(table, r) for r in reference.append(recordings.load(variant, table))]
    rows = append[1].rows(_table(variant, table))
    assert values.differences(expected, rows, typed=variant in truth.TYPED) == []


@pytest.mark.parametrize("variant", tiered(WHOLE, WHOLE[:1]))
def test_names_are_kept(append: Result, variant: str) -> None:
    """Columns keep their names, with dots, spaces, digits in front and letters beyond ASCII, and their values."""
    expected = reference.append(recordings.load(variant, "Weird_Table"))
    rows = append[1].rows(_table(variant, "Weird_Table"))
    assert values.differences(expected, rows, typed=variant in truth.TYPED) == []
    assert set(recordings.column_types("Weird_Table")) <= set(rows[0])


@pytest.mark.parametrize("variant", tiered(KEYLESS, KEYLESS_FEW))
def test_a_table_without_key_gets_every_event(append: Result, variant: str) -> None:
    """Events without a key are appended, and the tombstones behind their deletes are left out."""
    expected = reference.append(recordings.load(variant, "events_nopk"))
    rows = append[1].rows(_table(variant, "events_nopk"))
    assert values.differences(expected, rows, typed=variant in truth.TYPED) == []


@pytest.mark.parametrize("mode", ["hard", "soft", "append"])
def test_nothing_recorded_is_a_dead_letter(mode: str, topics: Topics, request: pytest.FixtureRequest) -> None:
    """A real connector's events are all understood, transaction and logical messages included."""
    run: Run = request.getfixturevalue(mode)[0]
    letters = [dict(letter.headers) for letter in topics.read(f"{mode}-dead-letters")]
    parts = ("topic", "partition", "offset", "exception.message")
    told = [tuple(h[f"__connect.errors.{part}"] for part in parts) for h in letters]
    expected = UNREPRESENTABLE if mode == "append" else set()
    assert {t[:3] for t in told} == expected
    assert all(b"cannot be represented" in (t[3] or b"") for t in told)
    assert run.total("dead_letters") == len(told)


def test_a_schema_block_gives_exact_column_types(hard: Result) -> None:
    """Each semantic type of the schema block is the Iceberg type that means the same."""
    types = hard[1].types("js_public_customers")
    assert {name: types[name] for name in EXACT_TYPES} == EXACT_TYPES


EXACT_TYPES = {
    "id": "int",
    "name": "string",
    "balance": "decimal(10, 2)",
    "created": "timestamptz",
    "updated": "timestamp",
    "birth": "date",
    "wake": "time",
    "active": "boolean",
    "score": "double",
    "uid": "uuid",
    "meta": "string",
    "tags": "list<string>",
    "avatar": "binary",
    "mood": "string",
    "__deleted": "string",
    "__source_ts_ns": "long",
    "__ts_ms": "long",
}


@pytest.mark.parametrize(("variant", "table"), recordings.diagonal(recordings.KEYED))
def test_identifier_fields_come_from_the_key(hard: Result, variant: str, table: str) -> None:
    """A table made by the sink has the fields of the record key as its identifier fields."""
    assert hard[1].identifiers(_table(variant, table)) == set(truth.KEYS[table])


def test_a_second_run_changes_nothing(hard: Result) -> None:
    """Run again with nothing new on the topics, the sink commits nothing."""
    _, tables, space = hard
    names = [_table(*case) for case in KEYED if case[1] == "customers"]
    before = [len(tables.summaries(name)) for name in names]
    again = space.run()
    assert (again.code, again.total("events")) == (0, 0)
    assert [len(tables.summaries(name)) for name in names] == before
