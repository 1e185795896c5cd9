"""What a catalog does with a commit, and what it says of it -> tables that are right, whole, and gone on with.

A REST catalog between us and a real one (`tests.servers.rest_catalog`) lets the commits of a batch land and say so,
land and be silent, land late, be refused, land and be called refused, or find nobody; of tables in every write mode,
schemas, new tables, the offsets and the deleted keys; and of a source's positions.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from attrs import define, field, frozen
from pyspark.sql import SparkSession

from connector.sink.destinations.iceberg.write.file_layout import file_layout
from connector.sink.factory import Sink
from connector.sink.model.micro_batch import MicroBatch
from tests.clients.lake import Lake
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink, LazySink
from tests.runs.sources import SourceWorkspace
from tests.servers.rest_catalog import Fate, RestCatalog, see_whole

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

_OTHER_MODES = {"by_place": {"write-mode": "position-delete"}, "versions": {"scd-type": "2"}}
"""They commit as `by_key` does: data files and delete files."""
MODES = {
    "appended": {"write-mode": "append"},
    "by_key": {},
    "copied": {"write-mode": "copy-on-write"},
    **(_OTHER_MODES if THOROUGH else {}),
}
FATES = tiered(Fate, [Fate.SILENT], lambda fate: fate.name.lower())
TRUNCATED = ("fate.emptied", "fate.sifted")
"""Topics with truncates: of one source table, so that whole files go, and of one of two, so that rows go."""
OWN = ("_debezium_offset_storage", "_debezium_deleted_keys", "schemas")
KEYS = 6
Row = dict[str, Any]


@define(eq=False)
class CommitOutcomes:
    """A sink on that catalog, what came in, and what must be in its tables."""

    rest: RestCatalog
    topics: Topics
    inside: InProcessSink
    truth: Lake
    lazy: LazySink
    ends: dict[str, int] = field(factory=dict)
    events: dict[str, list[Row]] = field(factory=dict)
    _clock: int = 1_000_000_000

    @property
    def sink(self) -> Sink:
        """The sink, started with the first batch."""
        return self.lazy.now

    def close(self) -> None:
        """Stop it."""
        self.lazy.close()

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
            raw = None if op == "t" else json.dumps({"id": key}).encode()
            event = _envelope(op, row) if topic in TRUNCATED else row
            records.append(Record(topic, 0, 0, raw, json.dumps(event).encode()))
            self.events.setdefault(topic, []).append(row)
        self.topics.replay(records, create=topic not in self.ends)
        self.ends[topic] = self.ends.get(topic, 0) + len(changes)

    def bring_in(self) -> None:
        """Let the sink take in everything, in one batch, its offsets saved."""
        sink = self.sink
        start = {at: offset for at, offset in sink.batches.position.offsets.items() if at[0] in self.ends}
        sink.batches.process(MicroBatch(0, start, {(topic, 0): end for topic, end in self.ends.items()}))
        sink.batches._await_settlement()

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
        stored = json.loads(offsets[self.inside.space.properties["name"]])["offsets"]
        assert {topic: parts["0"] for topic, parts in stored.items()} == self.ends

    def check_files(self) -> None:
        """See that every file that any snapshot of any table has is there, and that none was added twice."""
        for table in [topic.replace(".", "_") for topic in self.events] + [
            name for name in OWN if name not in self.truth.names()
        ]:
            see_whole(self.truth, table)


@frozen
class FatedSource:
    """A source on a catalog whose answers are chosen."""

    rest: RestCatalog
    source: SourceWorkspace
    truth: Lake
    sent: list[int] = field(factory=list)


def _envelope(op: str, row: Row) -> Row:
    """The change as Debezium has it before it is unwrapped; odd keys are of another table of the same topic."""
    place = {"name": "srv", "db": "db", "schema": "public", "table": "xy"[row["id"] % 2]}
    after = None if op == "t" else {"id": row["id"], "n": row["n"]}
    return {"before": None, "after": after, "source": {**place, "ts_ns": row["__source_ts_ns"]}, "op": op}


def _held(events: list[Row]) -> dict[int, int]:
    held: dict[int, int] = {}
    for event in events:
        if event["__op"] == "t":
            held = {key: value for key, value in held.items() if key % 2 != event["id"] % 2}
        elif event["__op"] == "d":
            held.pop(event["id"], None)
        else:
            held[event["id"]] = event["n"]
    return held


def _keys_of(topic: str) -> range:
    return range(0, KEYS, 2) if topic.endswith("emptied") else range(KEYS)


@pytest.fixture(scope="module")
def outcomes(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CommitOutcomes]:
    """A sink with a table of every write mode, some rows in each."""
    catalog = RestCatalog(spark, tmp_path_factory.mktemp("rest"), "fate_behind")
    with catalog.serving() as rest:
        modes = {f"iceberg.table.fate_{t}.{k}": v for t, told in MODES.items() for k, v in told.items()}
        told = {
            "topics.regex": r"fate\..*",
            "truncate.enabled": "true",
            "debezium.sink.iceberg.upsert-keep-deletes": "false",
            "debezium.source.schema.history.internal.iceberg.table-name": "schemas",
            "errors.retry.timeout": "30000",
            "errors.retry.delay.max.ms": "200",
            "iceberg.tables.auto-create-props.commit.retry.num-retries": "1",
        }
        properties = {f"debezium.sink.iceberg.{k}": v for k, v in rest.properties.items()}
        space = plain_workspace("fate", {**told, **modes, **properties})
        inside = InProcessSink(spark, space, rest.properties)
        made = CommitOutcomes(rest, topics, inside, Lake(spark, "fate_behind", rest.behind), LazySink(inside))
        for table in MODES:
            made.send(f"fate.{table}", [("c", key, key) for key in range(KEYS)])
        for topic in TRUNCATED:
            made.send(topic, [("c", key, key) for key in _keys_of(topic)])
        made.bring_in()
        made.check()
        yield made
        made.close()


@pytest.mark.parametrize("fate", FATES)
def test_every_commit_of_a_batch_meets_the_same_fate(outcomes: CommitOutcomes, fate: Fate) -> None:
    """Rows, schemas, new tables, truncates, deleted keys, offsets: all come out right, and the sink goes on."""
    n, place = 100 * (1 + list(Fate).index(fate)), list(Fate).index(fate)
    for table in MODES:
        changes = [("u", 0, n), ("u", 1, n + 1), ("c", KEYS + place, n + 2), ("d", 2 + place % 4, n + 3)]
        outcomes.send(f"fate.{table}", changes, f"more_{place}")
    outcomes.send(f"fate.new_{place}", [("c", 1, n), ("c", 2, n)])
    for topic in TRUNCATED:
        outcomes.send(topic, [("t", 0, 0), *(("c", key, n + key) for key in _keys_of(topic)[::2])])
    tables = [f"fate_{table}" for table in MODES]
    emptied = [topic.replace(".", "_") for topic in TRUNCATED]
    fates = {("snapshot", t): fate for t in (*tables, *emptied, *OWN)} | {("schema", t): fate for t in tables}
    outcomes.rest.fates = {**fates, ("create", f"fate_new_{place}"): fate, ("snapshot", f"fate_new_{place}"): fate}
    outcomes.rest.met.clear()
    outcomes.bring_in()
    outcomes.rest.end()
    assert {(kind, table) for kind, table, met in outcomes.rest.met if met is fate} >= set(fates), outcomes.rest.fates
    outcomes.check()
    outcomes.send("fate.by_key", [("u", 0, n + 9)])
    outcomes.bring_in()
    outcomes.check()


@pytest.mark.thorough
def test_after_all_fates_every_file_is_there_once(outcomes: CommitOutcomes) -> None:
    """What any snapshot of any table holds can be read, and a sink that starts goes on from there."""
    outcomes.check_files()
    outcomes.close()
    outcomes.send("fate.copied", [("u", 0, 7)])
    outcomes.bring_in()
    outcomes.check()


def test_credentials_that_a_catalog_hands_out_are_renewed(outcomes: CommitOutcomes) -> None:
    """Every batch's tasks get credentials that are good still, whatever was cached."""
    tokens = count()
    outcomes.rest.config = lambda: {"s3.session-token": f"{next(tokens):06d}", "s3.session-token-expires-at-ms": "1"}
    outcomes.close()
    try:
        for _ in range(2):
            outcomes.send("fate.by_key", [("u", 1, 5), ("d", 0, 5)])
            outcomes.bring_in()
        outcomes.check()
        targets, told = outcomes.sink.destination.tables, list[str]()
        for _ in range(2):
            told.append(file_layout(targets.plan("fate_by_key", 0, {})).io_properties["s3.session-token"])
            assert targets.deleted_keys is not None
            told.append(targets.deleted_keys.layout.io_properties["s3.session-token"])
        assert told == sorted(set(told))
    finally:
        outcomes.rest.config = dict
        outcomes.close()


@pytest.fixture(scope="module")
def fated(spark: SparkSession, topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FatedSource]:
    """A source on such a catalog, with one table."""
    home = tmp_path_factory.mktemp("fated")
    with RestCatalog(spark, home, "fated_behind").serving() as rest:
        extra = {f"iceberg.catalog.{key}": value for key, value in rest.properties.items()}
        assert Lake(spark, "fated", rest.properties)
        source = SourceWorkspace(spark, topics, home, "fated", {**extra, "errors.retry.delay.max.ms": "200"})
        source.spark.sql("CREATE NAMESPACE fated.db")
        source.sql("CREATE TABLE T.t (id BIGINT NOT NULL) TBLPROPERTIES ('format-version'='2')")
        source.identify("t", "id")
        yield FatedSource(rest, source, Lake(spark, "fated_behind", rest.behind))


@pytest.mark.parametrize("fate", FATES)
def test_a_source_is_told_what_became_of_its_position(fated: FatedSource, fate: Fate) -> None:
    """Whatever the catalog does with the commit of its position, each snapshot is published once, and it goes on."""
    own = fated.source.settings().capture.offsets_table
    if not fated.sent:
        fated.source.publish()
    fated.sent.append(list(Fate).index(fate))
    fated.source.sql(f"INSERT INTO T.t VALUES ({fated.sent[-1]})")
    fated.rest.fates["snapshot", own] = fate
    fated.source.publish()
    fated.rest.end()
    assert not fated.rest.fates
    assert fated.source.publish() == []
    assert sorted(event["after"]["id"] for event in fated.source.events("t")) == sorted(fated.sent)


def test_after_all_fates_a_sources_positions_are_whole(fated: FatedSource) -> None:
    """Every file of every snapshot of its positions is there."""
    see_whole(fated.truth, fated.source.settings().capture.offsets_table)
