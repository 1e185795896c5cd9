"""keys within structs, and keys that were renamed -> tables with one row per key, in every mode that takes them.

The changes are those of `tests.model.events`, whose key is one number; here it is told by two fields within structs, so
that keys are often equal in one of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError
from serde.events.images.unavailable_value import PLACEHOLDER
from tests.clients.lake import Lake
from tests.clients.search import Search
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import THOROUGH
from tests.model.events import Database, Row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

LIFE = Life(9, updated=0.5, moved=0.3, again=0.0)
HARD = {"debezium.sink.iceberg.upsert-keep-deletes": "false"}
DDL = "customer STRUCT<id: BIGINT NOT NULL, sub: STRUCT<code: STRING NOT NULL> NOT NULL, label: STRING> NOT NULL"
IDENTIFIERS = ["customer.id", "customer.sub.code"]


@attrs.frozen
class Kind:
    """How one table comes about, and how its events tell their key."""

    mode: str
    keyed: str
    version: int = 0
    partitioned: str = ""
    more: dict[str, str] = attrs.field(factory=dict)


KINDS = {
    "nest_vec": Kind("position-delete", "dotted", 3, "PARTITIONED BY (bucket(2, customer.id))"),
    "nest_cow": Kind("copy-on-write", "within", 2),
    "nest_made": Kind("position-delete", "within"),
    "nest_val": Kind("copy-on-write", "value", more={"id-columns": "customer.id,customer.sub"}),
}
KINDS = KINDS if THOROUGH else {name: KINDS[name] for name in ("nest_vec", "nest_made")}


def _customer(key: int) -> Row:
    return {"id": key // 3, "sub": {"code": "abc"[key % 3]}}


def _row(row: Row) -> Row:
    told = {} if row["name"] is None else {"label": f"of {row['name']}"}
    return {"customer": {**_customer(row["id"]), **told}, "name": row["name"], "n": row["n"]}


def _key(key: int, keyed: str) -> Row:
    customer = _customer(key)
    dotted = {"customer.id": customer["id"], "customer.sub.code": customer["sub"]["code"]}
    return {"within": {"customer": customer}, "dotted": dotted, "value": {"other": key}}[keyed]


def _nested(record: Record, keyed: str) -> Record:
    key = json.dumps(_key(json.loads(record.key or b"")["id"], keyed)).encode()
    if record.value is None:
        return attrs.evolve(record, key=key)
    event = json.loads(record.value)
    images = {side: event[side] and _row(event[side]) for side in ("before", "after")}
    return attrs.evolve(record, key=key, value=json.dumps({**event, **images}).encode())


def _again(rng: random.Random, db: Database, ends: list[int]) -> list[Record]:
    """Some old part of the log: from an event to the end of a transaction."""
    end = rng.choice(ends[1:])
    return db.log[rng.choice([at for at in range(end) if db.log[at].value is not None]) : end]


def _create(inside: InProcessSink, name: str, kind: Kind, columns: str = DDL) -> Any:
    """Make a table with identifier fields within a struct; what else events have comes by evolution."""
    lake, full = inside.lake, f"{inside.space.name}.`default`.{name}"
    inside.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {inside.space.name}.`default`")
    properties = f"TBLPROPERTIES ('format-version' = '{kind.version}')"
    inside.spark.sql(f"CREATE TABLE {full} ({columns}) USING iceberg {kind.partitioned} {properties}")
    lake.java(name).updateSchema().setIdentifierFields(IDENTIFIERS).commit()


def _found(lake: Lake, name: str) -> list[str]:
    return sorted(str((r["customer"], r["name"], r["n"])) for r in lake.many(name))


def _expected(rows: Iterable[Row]) -> list[str]:
    return sorted(str((r["customer"], r["name"], r["n"])) for r in map(_row, rows))


def test_rows_are_told_apart_by_fields_within_structs(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Creates, updates, deletes, moved keys and what comes again end in the source's rows: in tables that were there
    and new ones, by record keys with structs, with dotted names, and by columns of the value."""
    rng = random.Random(11)
    sources = {name: Database(name, 2) for name in KINDS}
    settings = {f"iceberg.table.{name}.write-mode": kind.mode for name, kind in KINDS.items()}
    settings |= {f"iceberg.table.{n}.{key}": text for n, kind in KINDS.items() for key, text in kind.more.items()}
    space = plain_workspace("nested_keys", {"topics.regex": "nest_.*", **HARD, **settings})
    inside = InProcessSink(spark, space)
    for name, kind in KINDS.items():
        if kind.version:
            _create(inside, name, kind)
    topics.create(dict.fromkeys(KINDS, 2))
    late, ends = 0, {name: [0] for name in KINDS}
    changes = (40, 8)
    for fresh in changes:
        for name, db in sources.items():
            again = _again(rng, db, ends[name]) if fresh < changes[0] else []
            start = len(db.log)
            for _ in range(fresh):
                LIFE.live(rng, db, 1)
                ends[name].append(len(db.log))
            records = [*again, *db.log[start:]]
            topics.replay((_nested(r, KINDS[name].keyed) for r in records), create=False)
        reports = inside.run()
        late += sum(report.metrics.late for report in reports)
        assert not sum(report.dead_letters for report in reports)
        for name, db in sources.items():
            assert _found(inside.lake, name) == _expected(db.rows.values()), (name, fresh)
            count = spark.sql(f"SELECT count(*) FROM {space.name}.`default`.{name}").collect()[0][0]
            assert count == len(db.rows), name
            assert inside.lake.identifiers(name) == set(IDENTIFIERS)
    assert late > 0


SOFT = {"soft_pos": "position-delete", **({"soft_cow": "copy-on-write"} if THOROUGH else {})}


def _flat(topic: str, key: int, now: int, op: str, **fields: Any) -> Record:
    value = {"customer": {**_customer(key), "label": "x"}, "n": now, "big": f"big {key}", **fields}
    value |= {"__op": op, "__source_ts_ns": now}
    return Record(topic, 0, 0, json.dumps(_key(key, "within")).encode(), json.dumps(value).encode())


def test_what_only_the_table_knows_is_found_by_such_keys(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Unsent values, rows that tombstones mark, changes that come late, and versions of a history are looked up."""
    modes = {f"iceberg.table.{name}.write-mode": mode for name, mode in {**SOFT, "soft_scd": "position-delete"}.items()}
    settings = {"topics.regex": "soft_(pos|cow|scd)", "iceberg.table.soft_scd.scd-type": "2", **modes}
    inside = InProcessSink(spark, plain_workspace("soft_nested", settings))
    names = [*SOFT, "soft_scd"]
    topics.replay([_flat(name, key, 1000 + key, "c") for name in names for key in range(4)])
    inside.run()
    again = []
    for name in names:
        again.append(_flat(name, 0, 2000, "u", big=PLACEHOLDER))
        again.append(attrs.evolve(_flat(name, 1, 0, "d"), value=None))
        again.append(_flat(name, 2, 500, "u", big="late"))
    topics.replay(again, create=False)
    inside.run()
    for name in SOFT:
        rows = {3 * r["customer"]["id"] + "abc".index(r["customer"]["sub"]["code"]): r for r in inside.lake.many(name)}
        assert {key: (r["n"], r["big"], r["__deleted"]) for key, r in rows.items()} == {
            0: (2000, "big 0", "false"),
            1: (1001, "big 1", "true"),
            2: (1002, "big 2", "false"),
            3: (1003, "big 3", "false"),
        }
    versions = sorted((r["n"], r["is_current"]) for r in inside.lake.many("soft_scd"))
    assert versions == [(500, False), *((n, n != 1000) for n in range(1000, 1004)), (2000, True)]


def test_equality_deletes_by_fields_within_structs_are_refused(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """The default mode stops at such a table, and at such a configured key, before it writes; a record key with a
    struct gets no table, and its records are dead letters."""
    space = plain_workspace("nested_refused", {"topics.regex": "refused_keys.*", **HARD})
    inside = InProcessSink(spark, space)
    record = _flat("refused_keys_new", 1, 1, "c")
    topics.replay([record])
    assert [report.dead_letters for report in inside.run()] == [1]
    assert inside.lake.names() == set()
    with pytest.raises(FatalError, match=r"refused_keys_new.*customer\.id.*write-mode"):
        inside.run({"name": "refused_again", "iceberg.tables.default-id-columns": "customer.id"})
    _create(inside, "refused_keys_old", Kind("equality-delete", "within", 2))
    topics.replay([attrs.evolve(record, topic="refused_keys_old")])
    with pytest.raises(FatalError, match=r"refused_keys_old.*customer\.id, customer\.sub\.code.*write-mode"):
        inside.run()
    inside.run({"debezium.sink.iceberg.upsert": "false"})
    assert len(inside.lake.many("refused_keys_old")) == 1


def test_a_renamed_key_follows_its_column(topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession) -> None:
    """Once a key column was renamed in the table, events with the new name replace the rows of before; those that still
    have the old one are dead letters, never rows of their own."""
    names = {"renamed_flat": "equality-delete", "renamed_deep": "position-delete"}
    settings = {f"iceberg.table.{name}.write-mode": mode for name, mode in names.items()}
    inside = InProcessSink(
        spark, plain_workspace("renamed_keys", {"topics.regex": "renamed_(flat|deep)", **HARD, **settings})
    )

    def record(topic: str, name: str, key: int, n: int) -> Record:
        own = {name: key} if topic == "renamed_flat" else {"customer": {name: key}}
        value = {**own, "n": n, "__op": "u", "__source_ts_ns": n}
        return Record(topic, 0, 0, json.dumps(own).encode(), json.dumps(value).encode())

    topics.replay([record(topic, "id", key, 1) for topic in names for key in (1, 2)])
    inside.run()
    # Iceberg 1.12 looks for the new name of a nested identifier field at the top level, and finds none.
    inside.lake.java("renamed_deep").updateSchema().setIdentifierFields([]).commit()
    for topic, column in zip(names, ("id", "customer.id"), strict=True):
        spark.sql(f"ALTER TABLE {inside.space.name}.`default`.{topic} RENAME COLUMN {column} TO ident")
    inside.lake.java("renamed_deep").updateSchema().setIdentifierFields(["customer.ident"]).commit()
    again = [record(topic, name, key, 2) for topic in names for name, key in (("ident", 1), ("id", 2))]
    topics.replay(again, create=False)
    assert sum(report.dead_letters for report in inside.run()) == len(names)
    flat = [(r["ident"], r["n"]) for r in inside.lake.many("renamed_flat")]
    deep = [(r["customer"]["ident"], r["n"]) for r in inside.lake.many("renamed_deep")]
    assert sorted(flat) == sorted(deep) == [(1, 2), (2, 1)]


def test_documents_are_named_by_fields_within_structs(
    topics: Topics, plain_workspace: MakeWorkspace, search: Search, spark: SparkSession
) -> None:
    """The id of a document is made of the key's values, wherever they lie in the record key, its rows and its deletes;
    what comes again changes nothing."""
    name, rng = "nested.public.documents", random.Random(5)
    db, ends = Database(name, 2), [0]
    for _ in range(40):
        LIFE.live(rng, db, 1)
        ends.append(len(db.log))
    base = {"debezium.sink.type": "opensearch", "connection.url": search.url, "topics": name}
    inside = InProcessSink(spark, plain_workspace("nested_documents", base))
    topics.replay(_nested(record, "within") for record in db.log)
    inside.run()
    topics.replay([_nested(record, "within") for record in _again(rng, db, ends)], create=False)
    inside.run()
    found = {i: (d["customer"], d["name"], d["n"]) for i, d in search.documents(name).items()}
    rows = {f"{key // 3}-{'abc'[key % 3]}": _row(row) for key, row in db.rows.items()}
    assert found == {i: (r["customer"], r["name"], r["n"]) for i, r in rows.items()}
