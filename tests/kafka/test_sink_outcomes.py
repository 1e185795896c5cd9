"""What a catalog does with a commit, and what it says of it -> tables that are right, whole, and gone on with.

A REST catalog between us and a real one (`tests.rest_catalog`) lets the commits of a batch land and say so, land and be
silent, land late, be refused, land and be called refused, or find nobody; of tables in every write mode, schemas, new
tables, the offsets and the deleted keys; and of a source's positions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field, frozen
from pyspark.sql import SparkSession

from connector.sink.build import Sink
from connector.sink.records import Batch
from tests.conftest import MakeWorkspace
from tests.inside import Inside
from tests.model.recordings import Record
from tests.reading import Lake
from tests.rest_catalog import Fate, RestCatalog
from tests.sources import Spring
from tests.tiers import tiered
from tests.topics import Topics

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

MODES = {
    "appended": {"write-mode": "append"},
    "by_key": {},
    "by_place": {"write-mode": "position-delete"},
    "copied": {"write-mode": "copy-on-write"},
    "versions": {"scd-type": "2"},
}
FATES = tiered(Fate, [Fate.SILENT, Fate.LATER, Fate.REFUSED_BUT_LANDED], lambda fate: fate.name.lower())
OWN = ("_debezium_offset_storage", "_debezium_deleted_keys", "schemas")
KEYS = 6
Row = dict[str, Any]


@define(eq=False)
class Pond:
    """A sink on that catalog, what came in, and what must be in its tables."""

    rest: RestCatalog
    topics: Topics
    inside: Inside
    truth: Lake
    ends: dict[str, int] = field(factory=dict)
    events: dict[str, list[Row]] = field(factory=dict)
    _sink: Sink | None = field(default=None)
    _clock: int = 1_000_000_000

    @property
    def sink(self) -> Sink:
        """The sink, started with the first batch."""
        if self._sink is None:
            self._sink = self.inside.sink()
        return self._sink

    def close(self) -> None:
        """Stop it."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None

    def send(self, topic: str, changes: list[tuple[str, int, int]], column: str | None = None) -> None:
        """Produce changes (operation, key, value), with one more column from now on."""
        records = []
        for op, key, value in changes:
            self._clock += 1_000_000
            row = {
                "id": key,
                "n": value,
                "__op": op,
                "__deleted": str(op == "d").lower(),
                "__source_ts_ns": self._clock,
            }
            row |= {} if column is None else {column: value}
            raw = json.dumps({"id": key}).encode()
            records.append(Record(topic, 0, 0, raw, json.dumps(row).encode()))
            self.events.setdefault(topic, []).append(row)
        self.topics.replay(records, create=topic not in self.ends)
        self.ends[topic] = self.ends.get(topic, 0) + len(changes)

    def bring_in(self) -> None:
        """Let the sink take in everything, in one batch, its offsets saved."""
        sink = self.sink
        start = {at: offset for at, offset in sink.batches.position.offsets.items() if at[0] in self.ends}
        sink.batches.process(Batch(0, start, {(topic, 0): end for topic, end in self.ends.items()}))
        sink.batches._settled()

    def check(self) -> None:
        """Compare all tables with what was sent."""
        for topic, events in self.events.items():
            table = topic.replace(".", "_")
            rows = self.truth.many(table)
            if topic.endswith("appended"):
                assert Counter(r["n"] for r in rows) == Counter(e["n"] for e in events), table
            elif topic.endswith("versions"):
                current = {r["id"]: r["n"] for r in rows if r["is_current"]}
                assert current == _held(events), table
                assert Counter(r["id"] for r in rows if r["n"] is not None)  # the versions are there
                made = Counter((e["id"], e["n"]) for e in events if e["__op"] != "d")
                assert Counter((r["id"], r["n"]) for r in rows) == made, table
            else:
                assert Counter((r["id"], r["n"]) for r in rows) == Counter(_held(events).items()), table
        offsets = {r["id"]: r["offset_data"] for r in self.truth.many(OWN[0])}
        stored = json.loads(offsets[self.inside.space.name])["offsets"]
        assert {topic: parts["0"] for topic, parts in stored.items()} == self.ends

    def check_files(self) -> None:
        """See that every file that any snapshot of any table has is there, and that none was added twice."""
        for table in [topic.replace(".", "_") for topic in self.events] + [
            name for name in OWN if name not in self.truth.names()
        ]:
            whole(self.truth, table)


@frozen
class Sprung:
    """A source on that catalog."""

    rest: RestCatalog
    source: Spring
    truth: Lake
    sent: list[int] = field(factory=list)


def whole(lake: Lake, table: str) -> None:
    """See that every file of every snapshot of a table is there, and that no commit added one twice."""
    java = lake.java(table)
    for snapshot in java.snapshots():
        assert _is_there(snapshot.manifestListLocation()), f"{table}: manifest list of {snapshot.toString()}"
        gone = [str(m.path()) for m in snapshot.allManifests(java.io()) if not _is_there(m.path())]
        assert not gone, f"{table}: manifests {gone} of {snapshot.toString()}"
    full = f"{lake._name}.`default`.`{table}`"
    for kind in ("all_data_files", "all_delete_files"):
        found = [r["file_path"] for r in lake._spark.sql(f"SELECT DISTINCT file_path FROM {full}.{kind}").collect()]
        assert [path for path in found if not _is_there(path)] == [], table
    live = Counter(r["file_path"] for r in lake._spark.sql(f"SELECT file_path FROM {full}.data_files").collect())
    assert all(count == 1 for count in live.values()), table
    ids = [s.summary().get("icebridge.commit-id") for s in java.snapshots()]
    said = [one for one in ids if one is not None]
    assert len(set(said)) == len(said), table


def _is_there(path: Any) -> bool:
    return Path(str(path).removeprefix("file:")).exists()


def _held(events: list[Row]) -> dict[int, int]:
    held: dict[int, int] = {}
    for event in events:
        if event["__op"] == "d":
            held.pop(event["id"], None)
        else:
            held[event["id"]] = event["n"]
    return held


@pytest.fixture(scope="module")
def pond(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pond]:
    """A sink with a table of every write mode, some rows in each."""
    catalog = RestCatalog(spark, tmp_path_factory.mktemp("rest"), "fate_behind")
    with catalog.serving() as rest:
        modes = {f"iceberg.table.fate_{t}.{k}": v for t, told in MODES.items() for k, v in told.items()}
        told = {
            "topics.regex": r"fate\..*",
            "debezium.sink.iceberg.upsert-keep-deletes": "false",
            "debezium.source.schema.history.internal.iceberg.table-name": "schemas",
            "errors.retry.timeout": "30000",
            "errors.retry.delay.max.ms": "200",
            "iceberg.tables.auto-create-props.commit.retry.num-retries": "1",
        }
        properties = {f"debezium.sink.iceberg.{k}": v for k, v in rest.properties.items()}
        space = plain_workspace("fate", {**told, **modes, **properties})
        made = Pond(rest, topics, Inside(spark, space, rest.properties), Lake(spark, "fate_behind", rest.behind))
        for table in MODES:
            made.send(f"fate.{table}", [("c", key, key) for key in range(KEYS)])
        made.bring_in()
        made.check()
        yield made
        made.close()


@pytest.mark.parametrize("fate", FATES)
def test_every_commit_of_a_batch_meets_the_same_fate(pond: Pond, fate: Fate) -> None:
    """Rows, schemas, new tables, deleted keys, offsets: nothing is lost, doubled or unreadable, the sink goes on."""
    n, place = 100 * (1 + list(Fate).index(fate)), list(Fate).index(fate)
    for table in MODES:
        changes = [("u", 0, n), ("u", 1, n + 1), ("c", KEYS + place, n + 2), ("d", 2 + place % 4, n + 3)]
        pond.send(f"fate.{table}", changes, f"more_{place}")
    pond.send(f"fate.new_{place}", [("c", 1, n), ("c", 2, n)])
    tables = [f"fate_{table}" for table in MODES]
    fates = {("snapshot", t): fate for t in (*tables, *OWN)} | {("schema", t): fate for t in tables}
    pond.rest.fates = {**fates, ("create", f"fate_new_{place}"): fate, ("snapshot", f"fate_new_{place}"): fate}
    pond.rest.met.clear()
    pond.bring_in()
    pond.rest.end()
    assert {(kind, table) for kind, table, met in pond.rest.met if met is fate} >= set(fates), pond.rest.fates
    pond.check()
    pond.send("fate.by_key", [("u", 0, n + 9)])
    pond.bring_in()
    pond.check()


def test_after_all_fates_every_file_is_there_once(pond: Pond) -> None:
    """What any snapshot of any table holds can be read, and a sink that starts goes on from there."""
    pond.check_files()
    pond.close()
    pond.send("fate.copied", [("u", 0, 7)])
    pond.bring_in()
    pond.check()


def test_credentials_that_a_catalog_hands_out_are_renewed(pond: Pond) -> None:
    """Every batch's tasks get credentials that are good still, whatever was cached."""
    tokens = count()
    pond.rest.config = lambda: {"s3.session-token": f"{next(tokens):06d}", "s3.session-token-expires-at-ms": "1"}
    pond.close()
    try:
        for _ in range(2):
            pond.send("fate.by_key", [("u", 1, 5), ("d", 0, 5)])
            pond.bring_in()
        pond.check()
        targets, told = pond.sink.targets, list[str]()
        for _ in range(2):
            told.append(targets.plan("fate_by_key", 0, {}).layout.io_properties["s3.session-token"])
            assert targets.deleted_keys is not None
            told.append(targets.deleted_keys.layout.io_properties["s3.session-token"])
        assert told == sorted(set(told))
    finally:
        pond.rest.config = dict
        pond.close()


@pytest.fixture(scope="module")
def sprung(spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sprung]:
    """A source on such a catalog, with one table."""
    home = tmp_path_factory.mktemp("sprung")
    with RestCatalog(spark, home, "sprung_behind").serving() as rest:
        extra = {f"iceberg.catalog.{key}": value for key, value in rest.properties.items()}
        assert Lake(spark, "sprung", rest.properties)
        source = Spring(spark, topics, home, "sprung", {**extra, "errors.retry.delay.max.ms": "200"})
        source.spark.sql("CREATE NAMESPACE sprung.db")
        source.sql("CREATE TABLE T.t (id BIGINT NOT NULL) TBLPROPERTIES ('format-version'='2')")
        source.identify("t", "id")
        yield Sprung(rest, source, Lake(spark, "sprung_behind", rest.behind))


@pytest.mark.parametrize("fate", FATES)
def test_a_source_is_told_what_became_of_its_position(sprung: Sprung, fate: Fate) -> None:
    """Whatever the catalog does with the commit of its position, each snapshot is published once, and it goes on."""
    own = sprung.source.settings().capture.offsets_table
    if not sprung.sent:
        sprung.source.publish()
    sprung.sent.append(list(Fate).index(fate))
    sprung.source.sql(f"INSERT INTO T.t VALUES ({sprung.sent[-1]})")
    sprung.rest.fates["snapshot", own] = fate
    sprung.source.publish()
    sprung.rest.end()
    assert not sprung.rest.fates
    assert sprung.source.publish() == []
    assert sorted(event["after"]["id"] for event in sprung.source.events("t")) == sorted(sprung.sent)


def test_after_all_fates_a_sources_positions_are_whole(sprung: Sprung) -> None:
    """Every file of every snapshot of its positions is there."""
    whole(sprung.truth, sprung.source.settings().capture.offsets_table)
