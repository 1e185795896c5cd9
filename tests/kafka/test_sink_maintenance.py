"""A sink that maintains its tables, a source that reads along, and other engines -> the rows of the model."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from attrs import define, field
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connector.cli.maintain.reports import TableReport
from connector.cli.maintain.rounds import Round, do_round
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.java import jvm
from connector.maintenance.lease import LeaseTable, owner_name
from connector.maintenance.lease_rules import LEASE_MS
from connector.maintenance.maintainer import Maintainer
from connector.maintenance.spark_actions import activate_session
from connector.maintenance.tasks import MAINTENANCE_TASK
from connector.settings.source.settings import load_source
from connector.sink.destinations.iceberg.destination import IcebergDestination
from connector.sink.destinations.iceberg.maintenance import SinkMaintenance
from connector.sink.factory import Sink
from connector.source.factory import build_source
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.histories.maintained import rewrite_held
from tests.histories.workshop import AFTER, BEFORE, cut_commits
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink
from tests.runs.processes import catalog
from tests.runs.sources import payload

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(3600)]

SECONDS = float(os.environ.get("ICEBRIDGE_MAINTENANCE_S", "0"))
"""For how long the law is tried; without it a few rounds."""
ROUNDS, KEYS, OTHERS = 6 if THOROUGH else 4, 30, 1_000_000

MAINTAINED = {
    "debezium.sink.iceberg.upsert-keep-deletes": "false",
    "iceberg.maintenance.enabled": "true",
    "iceberg.maintenance.rate-limit-seconds": "0",
    "iceberg.maintenance.convert-equality-deletes.schedule.eq-delete-file-count": "2",
    "iceberg.maintenance.rewrite.schedule.data-file-count": "8",
    "iceberg.maintenance.rewrite.min-input-files": "2",
    "iceberg.maintenance.rewrite-manifests.schedule.manifest-count": "5",
    "iceberg.maintenance.expire-snapshots.schedule.interval-second": "1",
    "iceberg.maintenance.expire-snapshots.max-snapshot-age-seconds": "1",
    "iceberg.maintenance.expire-snapshots.retain-last": "1",
}


@define
class Story:
    """Random changes of a table, and the rows that they leave; keys from `OTHERS` on are other engines'."""

    topic: str
    rng: Random
    topics: Topics
    rows: dict[int, int]
    made: int = 0

    def events(self) -> None:
        """Produce changes of some keys: each newer than all before."""
        events = []
        first = not self.made
        for _ in range(self.rng.randint(1, 12)):
            self.made += 1
            key, gone = self.rng.randrange(KEYS), self.rng.random() < 0.3
            op = "d" if gone else "u"
            value = {"id": key, "n": self.made, "p": key % 2, "__op": op, "__deleted": str(gone).lower()}
            value["__source_ts_ns"] = 1000 + self.made
            events.append(Record(self.topic, 0, 0, json.dumps({"id": key}).encode(), json.dumps(value).encode()))
            if gone:
                self.rows.pop(key, None)
            else:
                self.rows[key] = self.made
        self.topics.replay(events, create=first)


@define(eq=False)
class Neighbours:
    """What other engines do to the table."""

    inside: InProcessSink
    story: Story
    table: str
    done: Counter[str] = field(factory=Counter)

    @property
    def path(self) -> str:
        """The table's name in SQL."""
        return f"{self.inside.space.name}.`default`.`{self.table}`"

    def act(self, meanwhile: Callable[[], object]) -> None:
        """Do something at random; `meanwhile` happens while files are rewritten."""
        ours = (self._maintain, self._maintain_and_die)
        action = self.story.rng.choice((self._insert, self._delete, self._compact, self._compact_slowly, *ours))
        try:
            action(meanwhile)
            self.done[action.__name__] += 1
        except (Py4JError, PySparkException) as error:
            if "onflict" not in str(error) and "Cannot commit" not in str(error) and "deleted" not in str(error):
                raise
            self.done[f"{action.__name__}, refused"] += 1

    def _insert(self, _: Callable[[], object]) -> None:
        self.story.made += 1
        key = OTHERS + self.story.made
        columns = "id, n, p, __op, __deleted, __source_ts_ns"
        values = f"{key}, {self.story.made}, {key % 2}, 'c', 'false', {1000 + self.story.made}"
        self.inside.spark.sql(f"INSERT INTO {self.path} ({columns}) VALUES ({values})")
        self.story.rows[key] = self.story.made

    def _delete(self, _: Callable[[], object]) -> None:
        others = [key for key in self.story.rows if key > OTHERS]
        gone = self.story.rng.sample(others, len(others) // 2)
        if gone:
            mode = self.story.rng.choice(("merge-on-read", "copy-on-write"))
            self.inside.spark.sql(f"ALTER TABLE {self.path} SET TBLPROPERTIES ('write.delete.mode'='{mode}')")
            self.inside.spark.sql(f"DELETE FROM {self.path} WHERE id IN ({', '.join(map(str, gone))})")
            for key in gone:
                del self.story.rows[key]

    def _compact(self, _: Callable[[], object]) -> None:
        spark, table = self.inside.spark, self.inside.lake.java(self.table)
        activate_session(spark)
        actions = jvm(spark).org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
        actions.rewriteDataFiles(table).option("min-input-files", "2").execute()

    def _compact_slowly(self, meanwhile: Callable[[], object]) -> None:
        options = {"use-starting-sequence-number": self.story.rng.choice(("true", "true", "false"))}
        rewrite_held(self.inside.spark, self.inside.lake.java(self.table), meanwhile, options)

    def _maintain(self, meanwhile: Callable[[], object]) -> None:
        """`icebridge maintain` beside the sink's own maintenance, and its batches."""
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(self._run_command)
            meanwhile()
            reports = beside.result()
        for report in reports:
            assert report.failure is None, report.failure
            for one in report.done:
                lost = one.is_lost or one.failure is None or "onflict" in one.failure or "deleted" in one.failure
                assert lost, one.failure
                self.done[f"maintain {one.task}{', refused' if one.failure else ''}"] += 1

    def _maintain_and_die(self, meanwhile: Callable[[], object]) -> None:
        """The same, which ends at its next commit as by SIGKILL, while the sink does nothing."""
        meanwhile()
        with pytest.MonkeyPatch.context() as patch:
            cut_commits(patch, self.story.rng.choice((BEFORE, AFTER)))
            self._run_command(LEASE_MS)

    def _run_command(self, ago_ms: int = 0) -> list[TableReport]:
        """One round of it, by a clock that is late: others get the lease of one that died at once."""
        settings = self.inside.settings()
        catalog = Catalog(self.inside.spark, settings.catalog, settings.errors)
        leases = LeaseTable.open(catalog, settings.table.offsets_table, owner_name())
        leases._now_ms = lambda: time.time_ns() // 1_000_000 - ago_ms
        maintainer = Maintainer(
            self.inside.spark, catalog, settings.table, settings.name, leases, in_flight_ms=120_000, keeps_indexes=False
        )
        return list(do_round(settings, catalog, maintainer, Round(execute=True), first=False))


@define(eq=False)
class Reader:
    """A source that reads the table, and what its topic adds up to; `label` tells it from another one."""

    inside: InProcessSink
    topics: Topics
    table: str
    label: str = "read"

    def publish(self) -> None:
        """Read all that is there by now."""
        space = self.inside.space
        told = {
            "connector.class": "IcebergSource",
            "name": f"{self.table}_{self.label}",
            "bootstrap.servers": self.topics.bootstrap_servers,
            "topic.prefix": f"{self.table}_{self.label}",
            "table.include.list": rf"default\.{self.table}",
            "iceberg.catalog.catalog-name": space.name,
            **{f"iceberg.catalog.{key}": value for key, value in catalog(space.home).items()},
            "quarkus.http.port": "-1",
            "listeners": "",
        }
        file = space.home / f"{self.label}.txt"
        file.write_text("".join(f"{key}={value}\n" for key, value in told.items()).replace("\\", "\\\\"))
        build_source(self.inside.spark, load_source([file], environ={})).run(once=True)

    def events(self) -> list[dict[str, Any]]:
        """What it published, tombstones left out."""
        records = self.topics.read(f"{self.table}_{self.label}.default.{self.table}")
        return [payload(record.value) for record in records if record.value is not None]

    def rows(self) -> dict[int, int]:
        """What a replay of the topic gives; each change must fit what was there before it."""
        rows: dict[int, int] = {}
        for event in self.events():
            before, after = event["before"], event["after"]
            if before is not None:
                assert rows.pop(before["id"]) == before["n"]
            if after is not None:
                assert after["id"] not in rows, event
                rows[after["id"]] = after["n"]
        return rows


def maintenance_of(sink: Sink) -> SinkMaintenance:
    """Wait for what is under way."""
    assert isinstance(sink.destination, IcebergDestination) and sink.destination.maintenance is not None
    sink.destination.maintenance.wait()
    return sink.destination.maintenance


def rows_of(inside: InProcessSink, table: str) -> dict[int, int]:
    rows = inside.lake.many(table)
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["n"] for row in rows}


MODES, ANY = ("equality-delete", "position-delete", "copy-on-write"), "any"
"""The modes, and one that is another after each start of the sink."""


def _draw_writing(mode: str, rng: Random) -> dict[str, str]:
    """How a sink writes from its start on."""
    how = rng.choice(MODES) if mode == ANY else mode
    return {
        "debezium.sink.iceberg.write-mode": how,
        "iceberg.row-lookup": rng.choice(("key-index", "join")),
        "iceberg.maintenance.rewrite.min-input-files": rng.choice(("0", "2")),
    }


CASES = [(mode, version, by) for mode in (*MODES, ANY) for version in (2, 3) for by in ("", "p")]


@pytest.mark.parametrize(
    ("mode", "version", "by"),
    tiered(CASES, [("equality-delete", 3, "p")], lambda case: f"{case[0]}_v{case[1]}_{case[2] or 'none'}"),
)
def test_rows_are_those_of_the_model(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession, mode: str, version: int, by: str
) -> None:
    """Batches, maintenance inside of the sink and beside it that is cut now and then, other engines' compaction,
    inserts and deletes: no row is lost or comes back, and the topic of a source that reads along adds up to the table.
    """
    name = f"tended_{mode.replace('-', '_')}_v{version}_{by or 'none'}"
    story = Story(name, Random(f"{name}{os.environ.get('ICEBRIDGE_SEED', '')}"), topics, {})
    story.events()
    told = {"format-version": str(version), **({"partition-by": by} if by else {})}
    own = {f"debezium.sink.iceberg.{key}": value for key, value in told.items()}
    inside = InProcessSink(spark, plain_workspace(name, {**MAINTAINED, **own, "topics": name}))
    ends, turn = time.monotonic() + SECONDS, 0
    neighbours, reader = Neighbours(inside, story, name), Reader(inside, topics, name)

    def batch() -> None:
        story.events()
        sink.stream.run(once=True)

    def meanwhile() -> None:
        for _ in range(story.rng.randint(1, 3)):
            batch()
        maintenance_of(sink)

    def begin() -> Sink:
        begun = inside.sink(_draw_writing(mode, story.rng))
        maintenance_of(begun).maintainer.in_flight_ms = 120_000
        return begun

    def cut() -> None:
        batch()
        maintenance_of(sink)
        with pytest.MonkeyPatch.context() as patch:
            cut_commits(patch, story.rng.choice((BEFORE, AFTER)))
            batch()
            maintenance_of(sink)

    sink = begin()
    sink.stream.run(once=True)
    while turn < ROUNDS or time.monotonic() < ends:
        turn += 1
        if story.rng.random() < 0.6:
            neighbours.act(meanwhile)
        if story.rng.random() < 0.15:
            cut()
        if story.rng.random() < 0.3:
            sink.close()
            sink = begin()
        batch()
        if turn % 3 == 0:
            assert rows_of(inside, name) == story.rows
        if turn % 5 == 0:
            reader.publish()
            assert reader.rows() == story.rows
    sink.close()
    maintenance_of(sink)
    reader.publish()
    assert rows_of(inside, name) == story.rows == reader.rows()
    tasks = Counter(summary.get(MAINTENANCE_TASK) for summary in inside.lake.summaries(name))
    sys.stdout.write(f"{turn} turns, others: {dict(neighbours.done)}, tasks in the snapshots left: {dict(tasks)}\n")
    assert mode != "equality-delete" or "convert" in tasks
