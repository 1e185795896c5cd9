"""random changes, cut at random places, with crashes -> every write mode ends in the source's rows (formats v2 and v3).

The sink runs inside of this process, so that batches can be cut anywhere, and stopped just before or after a commit.
All modes and layouts are tables of one sink: each has a topic of its own with the same kind of changes.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import define, field
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

import connector.sink.destinations.iceberg.committer
from connector.errors import FatalError
from connector.sink.destinations.iceberg.write_modes import row_lookup
from connector.sink.model.micro_batch import MicroBatch
from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.harness.rounds import THOROUGH, seeded
from tests.harness.tiers import tiered
from tests.model.events import Database, row
from tests.model.life import Life
from tests.runs.in_process import InProcessSink, LazySink
from tests.runs.processes import Workspace

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

MODES = ("equality-delete", "position-delete", "copy-on-write")
LAYOUTS = {"flat": "", "moving": "region, bucket(id, 3)"}
SMOKE = (("equality-delete", "moving"), ("position-delete", "moving"), ("copy-on-write", "flat"))
KEYS = 40
REGIONS = ("north", "south", None)
Row = dict[str, Any]


class Crashed(BaseException):
    """Stands for SIGKILL: nothing of the sink catches it."""


@define
class Cut:
    """A sink in this process: batches are cut where the test says; `crashes` counts how often it died at a commit."""

    lazy: LazySink = field(converter=LazySink)
    rng: random.Random
    crashes: int = 0

    def close(self) -> None:
        """Stop as a sink does that is told to."""
        self.lazy.close()

    def read(self, ends: dict[tuple[str, int], int], batches: int) -> None:
        """Bring everything up to `ends` into the tables, in about so many batches."""
        while any(self.lazy.now.batches.position.offsets.get(at, 0) < end for at, end in ends.items()):
            start = {at: self.lazy.now.batches.position.offsets.get(at, 0) for at in ends}
            span = {
                at: end if batches == 1 else 1 + self.rng.randrange(2 * end // batches + 2) for at, end in ends.items()
            }
            cut = {at: min(end, start[at] + span[at]) for at, end in ends.items()}
            try:
                self.lazy.now.batches.process(MicroBatch(0, start, cut))
            except Crashed:
                self.crashes += 1
                self.lazy.lose()


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[random.Random, float], None]:
    """dying(rng, chance) lets a commit end in a crash, before or after it is made."""
    commit = connector.sink.destinations.iceberg.committer.commit_files

    def arm(rng: random.Random, chance: float) -> None:
        def mortal(*arguments: Any) -> Any:
            fate = rng.random()
            if fate < chance / 2:
                raise Crashed
            done = commit(*arguments)
            if fate < chance:
                raise Crashed
            return done

        monkeypatch.setattr(connector.sink.destinations.iceberg.committer, "commit_files", mortal)

    return arm


def _made(rng: random.Random, key: int) -> Row:
    return row(key, f"e{rng.randrange(10**6)}", rng.randrange(1000), rng.choice(REGIONS))


def _wider(rng: random.Random, key: int) -> Row:
    return _made(rng, key) | {"extra": rng.choice([None, rng.randrange(9)])}


def _live(rng: random.Random, db: Database, phase: int) -> None:
    """Random transactions; rows move between regions; after the first phase a column comes in that rows had not."""
    life = Life(KEYS, updated=0.6, moved=0.4, again=0.4, brief=0.2, made=_wider if phase else _made)
    life.live(rng, db, 120)


def _pass(topics: Topics, cut: Cut, databases: Iterable[Database], phase: int) -> None:
    """Let a phase of every source's life go by, and the sink take it in, in a few batches."""
    for db in databases:
        start = len(db.log)
        _live(cut.rng, db, phase)
        topics.replay(db.log[start:], create=False)
    cut.read(_ends(databases), batches=3 if THOROUGH else 2)
    cut.close()


def _name(version: int, mode: str, layout: str) -> str:
    return f"modes{version}.public.{mode.replace('-', '_')}_{layout}"


@pytest.mark.parametrize(("version", "soft"), tiered([(2, False), (3, True)], [(3, True)]))
def test_every_mode_ends_in_the_rows_of_the_source(
    spark: SparkSession,
    topics: Topics,
    make_workspace: MakeWorkspace,
    lake: OpenLake,
    dying: Callable[[random.Random, float], None],
    version: int,
    soft: bool,
) -> None:
    """Cut and killed anywhere, partitions and columns changing, each table holds exactly what its source holds."""
    rng = random.Random(seeded())
    tag = version * 10 + soft
    laid = [(mode, layout) for mode, layout in itertools.product(MODES, LAYOUTS) if THOROUGH or (mode, layout) in SMOKE]
    tables = {_name(tag, mode, layout): (mode, LAYOUTS[layout]) for mode, layout in laid}
    databases = {topic: Database(topic, 2) for topic in tables}
    topics.create(dict.fromkeys(tables, 2))
    space = make_workspace(f"modes_{tag}", {**_settings(tables, tag), **_general(version, soft)})
    inside = Cut(InProcessSink(spark, space), rng)
    for phase in range(3 if THOROUGH else 2):
        dying(rng, 0.03 if phase else 0.0)
        _pass(topics, inside, databases.values(), phase)
        opened = lake(space)
        for topic, (mode, _) in tables.items():
            name = topic.replace(".", "_")
            _assert_rows(_read(opened, space, name, mode), databases[topic], soft=soft)
            _assert_files(opened, name, mode, version)
    sys.stdout.write(f"{inside.crashes} crashes\n")


def _settings(tables: dict[str, tuple[str, str]], tag: int) -> dict[str, str]:
    found = {"topics.regex": rf"modes{tag}\..*"}
    for topic, (mode, terms) in tables.items():
        name = topic.replace(".", "_")
        found[f"iceberg.table.{name}.write-mode"] = mode
        if terms:
            found[f"debezium.sink.iceberg.partition-by.{name}"] = terms
    return found


def _general(version: int, soft: bool) -> dict[str, str]:
    return {
        "debezium.sink.iceberg.format-version": str(version),
        "debezium.sink.iceberg.upsert-keep-deletes": str(soft).lower(),
        "debezium.sink.iceberg.excluded-columns": "__db",
        "errors.retry.timeout": "20000",
    }


def _ends(databases: Any) -> dict[tuple[str, int], int]:
    ends: dict[tuple[str, int], int] = {}
    for db in databases:
        for record in db.log:
            at = (record.topic, record.partition)
            ends[at] = max(ends.get(at, 0), record.offset + 1)
    return ends


def _read(opened: Lake, space: Workspace, name: str, mode: str) -> list[Row]:
    """By Spark, and by PyIceberg too where it can: both must give the same."""
    rows = opened.many(name)
    if mode != "equality-delete":
        uri = f"sqlite:///{space.home / 'catalog.db'}"
        catalog = load_catalog(space.name, type="sql", uri=uri, warehouse=str(space.warehouse))
        found = catalog.load_table(f"default.{name}").scan().to_arrow().to_pylist()
        assert sorted(map(str, found)) == sorted(map(str, rows))
    return rows


def _assert_rows(rows: list[Row], db: Database, *, soft: bool) -> None:
    alive = [r for r in rows if r.get("__deleted") != "true"] if soft else rows
    assert sorted(map(_plain, alive)) == sorted(map(_plain, db.rows.values()))
    assert len({r["id"] for r in rows}) == len(rows)
    assert not rows or "__db" not in rows[0]
    if soft:
        gone = {_id(record.key) for record in db.log} - set(db.rows)
        assert {r["id"] for r in rows if r["__deleted"] == "true"} == gone


def _id(key: bytes | None) -> int:
    return int(json.loads(key or b"{}")["id"])


def _assert_files(opened: Lake, name: str, mode: str, version: int) -> None:
    """The mode decides which kind of delete files a table has."""
    files = opened.files(name)
    kinds = {file["content"] for file in files}
    allowed = {"equality-delete": {0, 2}, "position-delete": {0, 1}, "copy-on-write": {0}}[mode]
    assert kinds <= allowed, (name, kinds)
    vectors = [file for file in files if file["content"] == 1]
    assert all((file["file_format"] == "PUFFIN") == (version == 3) for file in vectors)
    assert len({file.get("referenced_data_file") for file in vectors}) == len(vectors)


def _plain(found: Row) -> tuple[str, ...]:
    return tuple(str(found.get(c)) for c in ("id", "name", "n", "region", "extra"))


OTHERS = {"compacts": 2, "deletes": 2, "inserts": 2, "adds": 1, "expires": 2}
"""What another writer does, and how often a commit is tried then: a row of another range of keys is none of ours."""


@pytest.mark.thorough
@pytest.mark.parametrize("versions", tiered([[2, 3], [3]], [[3]], lambda case: "-".join(map(str, case))))
def test_what_another_writer_does_between_finding_and_commit_is_not_lost(
    spark: SparkSession,
    topics: Topics,
    make_workspace: MakeWorkspace,
    lake: OpenLake,
    monkeypatch: pytest.MonkeyPatch,
    versions: list[int],
) -> None:
    """A compaction, a delete or new rows that come in between: found again, every change of both is in the table.

    Tables of version 3 were upgraded to it before, so that their vectors take older delete files in.
    """
    prefix = f"other{len(versions)}"
    tables = {
        f"{prefix}.public.{mode}_{other}_{version}".replace("-", "_"): (mode, other, version)
        for mode in MODES[1:]
        for other in OTHERS
        for version in versions
        if other not in ("adds", "expires") or version == 3
        if THOROUGH or list(OTHERS).index(other) % 2 == MODES.index(mode) - 1
    }
    databases = {topic: Database(topic, 1) for topic in tables}
    topics.create(dict.fromkeys(tables, 1))
    modes = {f"iceberg.table.{topic.replace('.', '_')}.write-mode": mode for topic, (mode, *_) in tables.items()}
    space = make_workspace(prefix, {"topics.regex": rf"{prefix}\..*", **modes, **_general(2, False)})
    inside = Cut(InProcessSink(spark, space), random.Random(1))
    opened = lake(space)
    for step in range(3):
        for db in databases.values():
            start = len(db.log)
            for key in range(0, 12, step + 1):
                db.transaction(("cuu"[step], row(key, f"step {step}", step)))
            topics.replay(db.log[start:], create=False)
        if step == 2:
            for topic, (*_, version) in tables.items():
                opened.java(topic.replace(".", "_")).updateProperties().set("format-version", str(version)).commit()
            tried = _interfere(monkeypatch, spark, space, opened, tables)
        inside.read(_ends(databases.values()), batches=1)
        inside.close()
    for topic, (mode, other, _) in tables.items():
        name, rows = topic.replace(".", "_"), dict(databases[topic].rows)
        rows |= {100: row(100, "other")} if other in ("adds", "expires") else {}
        if other == "deletes":
            del rows[1]
        found = _read(opened, space, name, mode)
        assert sorted(map(_plain, found)) == sorted(map(_plain, rows.values())), name
        assert tried[name] == OTHERS[other], (name, tried)
        assert {file["content"] for file in opened.files(name)} <= {0, 1}, name


def _interfere(
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    space: Workspace,
    opened: Lake,
    tables: dict[str, tuple[str, str, int]],
) -> dict[str, int]:
    """Let another writer be faster at the first commit to each table; gives how often each commit was tried."""
    commit, tried = connector.sink.destinations.iceberg.committer.commit_files, dict[str, int]()
    others = {topic.replace(".", "_"): other for topic, (_, other, _) in tables.items()}

    def slower(table: Any, *rest: Any) -> Any:
        name = table.name.rpartition(".")[2]
        tried[name] = tried.get(name, 0) + 1
        if tried[name] == 1:
            full = f"{space.name}.`default`.`{name}`"
            if others[name] == "compacts":
                actions = spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
                actions.rewriteDataFiles(opened.java(name)).option("rewrite-all", "true").execute()
            elif others[name] == "deletes":
                opened.java(name).updateProperties().set("write.delete.mode", "merge-on-read").commit()
                spark.sql(f"DELETE FROM {full} WHERE id = 1")
            else:
                columns = ", ".join(
                    f"CAST(NULL AS {f.dataType.simpleString()})"
                    if f.name not in ("id", "name", "n")
                    else {"id": "3L" if others[name] == "inserts" else "100L", "name": "'other'", "n": "0L"}[f.name]
                    for f in spark.table(full).schema.fields
                )
                spark.sql(f"INSERT INTO {full} SELECT {columns}")
                if others[name] == "expires":
                    opened.java(name).expireSnapshots().retainLast(1).expireOlderThan(2**53).commit()
        return commit(table, *rest)

    monkeypatch.setattr(connector.sink.destinations.iceberg.committer, "commit_files", slower)
    return tried


def test_commits_go_to_the_branch(
    spark: SparkSession, topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """A new table gets the branch, an older one must have it; rows, positions and lookups are the branch's."""
    database = Database("branch.public.t", 1)
    topics.create({database.topic: 1})
    branch = {"iceberg.tables.default-commit-branch": "audit", "debezium.sink.iceberg.write-mode": "position-delete"}
    space = make_workspace("branch", {"topics": database.topic, **branch, **_general(3, False)})
    inside, opened = Cut(InProcessSink(spark, space), random.Random(1)), lake(space)
    for step in range(3):
        start = len(database.log)
        for key in range(9):
            database.transaction(("cuu"[step], row(key, f"step {step}")))
        database.transaction(("d", step))
        topics.replay(database.log[start:], create=False)
        inside.read(_ends([database]), batches=1)
        inside.close()
    name = "branch_public_t"
    table = opened.java(name)
    audited = spark.read.format("iceberg").option("branch", "audit").load(f"{space.name}.default.{name}")
    assert sorted(_plain(r.asDict()) for r in audited.collect()) == sorted(map(_plain, database.rows.values()))
    assert table.currentSnapshot() is None
    table.manageSnapshots().createBranch("main", table.snapshot("audit").snapshotId()).commit()
    with pytest.raises(FatalError, match="no branch absent"):
        InProcessSink(spark, space).sink({"iceberg.tables.default-commit-branch": "absent"})


@pytest.mark.parametrize("modes", tiered([list(MODES), ["position-delete"]], [["position-delete"]], "-".join))
def test_a_table_with_history_has_every_version_of_a_key(
    spark: SparkSession,
    topics: Topics,
    make_workspace: MakeWorkspace,
    lake: OpenLake,
    dying: Callable[[random.Random, float], None],
    modes: list[str],
) -> None:
    """In every mode each change closes the version before it, deletes only close; batches and crashes do not show."""
    rng = random.Random(seeded())
    name = f"scd{len(modes)}"
    tables = {f"{name}.public.{mode.replace('-', '_')}": (mode, "") for mode in modes}
    databases = {topic: Database(topic, 2) for topic in tables}
    topics.create(dict.fromkeys(tables, 2))
    kinds = {"debezium.sink.iceberg.scd-type": "2", "topics.regex": rf"{name}\..*"}
    space = make_workspace(name, {**_settings(tables, 0), **_general(3, False), **kinds})
    inside, opened = Cut(InProcessSink(spark, space), rng), lake(space)
    for phase in range(2) if THOROUGH else (1,):
        dying(rng, 0.1 if phase else 0.0)
        _pass(topics, inside, databases.values(), phase)
        for topic, (mode, _) in tables.items():
            rows = _read(opened, space, topic.replace(".", "_"), mode)
            assert sorted(map(_version, rows)) == _versions(databases[topic]), topic


@pytest.mark.thorough
def test_rows_that_change_while_a_snapshot_runs_are_not_current_as_they_were_read(
    spark: SparkSession, topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """Their reads are dated later than the changes, and are in the table when these come."""
    database = Database("read.public.t", 1)
    topics.create({database.topic: 1})
    kinds = {"debezium.sink.iceberg.scd-type": "2", "topics": database.topic}
    space = make_workspace("reads", {**_general(2, False), **kinds})
    for key in range(3):
        database.rows[key] = row(key, "read")
        database.read(key)
    reads = len(database.log)
    database.transaction(("u", row(0, "changed")))
    database.transaction(("d", 1))
    for log in (database.log[:reads], database.log[reads:]):
        topics.replay(log, create=False)
        InProcessSink(spark, space).run()
    rows = lake(space).rows("read_public_t")
    found = sorted((found["id"], found["name"], found["is_current"]) for found in rows)
    assert found == [(0, "changed", True), (0, "read", False), (1, "read", False), (2, "read", True)]


def _version(found: Row) -> tuple[str, ...]:
    times = (str(found[name] and found[name].timestamp()) for name in ("valid_from", "valid_to"))
    return (*_plain(found), *times, str(found["is_current"]))


def _versions(db: Database) -> list[tuple[str, ...]]:
    """What the source's log says by itself: of changes of a key in one transaction the last counts."""
    by_key: dict[int, dict[int, Row | None]] = {}
    for record in db.log:
        if record.value is not None:
            event = json.loads(record.value)
            gone = event["op"] == "d"
            by_key.setdefault(_id(record.key), {})[event["source"]["ts_ns"]] = None if gone else event["after"]
    found = []
    for changes in by_key.values():
        times = [*sorted(changes), None]
        for since, until in itertools.pairwise(times):
            after = changes[since]
            if after is not None:
                end = None if until is None else datetime.fromtimestamp(until / 1e9, UTC)
                start = datetime.fromtimestamp(since / 1e9, UTC)
                found.append(_version({**after, "valid_from": start, "valid_to": end, "is_current": end is None}))
    return sorted(found)


@pytest.mark.thorough
def test_a_table_of_version_1_takes_copy_on_write_only(
    spark: SparkSession, topics: Topics, make_workspace: MakeWorkspace, lake: OpenLake
) -> None:
    """Modes with delete files stop with an error that says what to do; copied files need none."""
    database = Database("one.public.t", 1)
    topics.create({database.topic: 1})
    space = make_workspace("one", {"topics": database.topic, **_general(2, False)})
    opened, name = lake(space), "one_public_t"
    spark.sql(f"CREATE NAMESPACE {space.name}.`default`")
    columns = "id BIGINT NOT NULL, name STRING, n BIGINT, region STRING"
    spark.sql(f"CREATE TABLE {space.name}.`default`.{name} ({columns}) TBLPROPERTIES ('format-version' = '1')")
    opened.java(name).updateSchema().setIdentifierFields(["id"]).commit()
    for mode in ("equality-delete", "position-delete"):
        with pytest.raises(FatalError, match="format version 1"):
            InProcessSink(spark, space).sink({"debezium.sink.iceberg.write-mode": mode})
    copied = {**space.properties, "debezium.sink.iceberg.write-mode": "copy-on-write"}
    copying = Cut(InProcessSink(spark, attrs.evolve(space, properties=copied)), random.Random(1))
    for op in "cu":
        start = len(database.log)
        database.transaction(*((op, row(key, op)) for key in range(3)))
        topics.replay(database.log[start:], create=False)
        copying.read(_ends([database]), batches=1)
    database.transaction(("d", 1))
    topics.replay(database.log[-2:], create=False)
    copying.read(_ends([database]), batches=1)
    before = {file["file_path"] for file in opened.files(name)}
    database.transaction(("c", row(9, "short")), ("d", 9))
    topics.replay(database.log[-3:], create=False)
    copying.read(_ends([database]), batches=1)
    after = {file["file_path"] for file in opened.files(name)}
    assert after == before, "a row that was made and deleted within a batch leaves nothing"
    copying.close()
    assert sorted(map(_plain, opened.many(name))) == sorted(map(_plain, database.rows.values()))


@pytest.mark.parametrize("mode", tiered(MODES[1:], MODES[1:2]))
@pytest.mark.parametrize("search", tiered(["join", "key-index"], ["key-index"]))
def test_files_that_expire_before_they_are_searched_are_planned_anew(
    spark: SparkSession,
    topics: Topics,
    make_workspace: MakeWorkspace,
    lake: OpenLake,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    search: str,
) -> None:
    """Others rewrite a table and expire its snapshots while a batch searches its rows: the batch is tried again."""
    database = Database(f"expiring.public.{mode}_{search}".replace("-", "_"), 1)
    topics.create({database.topic: 1})
    how = {"debezium.sink.iceberg.write-mode": mode, "iceberg.row-lookup": search}
    named = f"expiring_{mode}_{search}".replace("-", "_")
    space = make_workspace(named, {"topics": database.topic, **how, **_general(2, False)})
    inside, opened = Cut(InProcessSink(spark, space), random.Random(1)), lake(space)
    name = database.topic.replace(".", "_")
    plan_files, planned = row_lookup.plan_files, []

    def plan(*arguments: Any) -> Any:
        planned.append(plan_files(*arguments))
        if len(planned) == 2:  # the look-up of the third batch: the first had no rows to search
            actions = spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
            actions.rewriteDataFiles(opened.java(name)).option("rewrite-all", "true").execute()
            actions.expireSnapshots(opened.java(name)).retainLast(1).expireOlderThan(2**53).execute()
        return planned[-1]

    monkeypatch.setattr(row_lookup, "plan_files", plan)
    for step in range(3):
        start = len(database.log)
        for key in range(9):
            database.transaction(("cuu"[step], row(key, f"step {step}")))
        topics.replay(database.log[start:], create=False)
        inside.read(_ends([database]), batches=1)
    inside.close()
    assert len(planned) == 3
    assert not any(Path(task.path.removeprefix("file:")).exists() for task in planned[1])
    assert sorted(map(_plain, _read(opened, space, name, mode))) == sorted(map(_plain, database.rows.values()))
