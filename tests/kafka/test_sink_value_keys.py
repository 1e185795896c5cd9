"""updates that change a key of the value -> one row each in every mode: none is left under an earlier key."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from serde.events.images.unavailable_value import PLACEHOLDER
from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.harness.rounds import THOROUGH
from tests.harness.tiers import tiered
from tests.model.recordings import Record
from tests.runs.in_process import InProcessSink

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

MODES = {
    "mail_by_key": {},
    "mail_by_place": {"write-mode": "position-delete"},
    **({"mail_copied": {"write-mode": "copy-on-write"}, "mail_versions": {"scd-type": "2"}} if THOROUGH else {}),
}
Row = dict[str, Any]


def _record(topic: str, place: int, op: str, before: Row | None, after: Row | None, partition: int = 0) -> Record:
    source = {"name": "s", "db": "d", "schema": "p", "table": "t", "ts_ns": 10**18 + place * 1_000_001, "lsn": place}
    event = {"op": op, "before": before, "after": after, "source": source}
    key = {"id": (after or before or {})["id"]}
    return Record(topic, partition, place, json.dumps(key).encode(), json.dumps(event).encode(), (), 1)


def test_no_row_is_left_under_an_earlier_key(
    topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """Rows that come, move from mail to mail and go, over batches and restarts, are those of the source."""
    names = {f"mail.{table.removeprefix('mail_')}": table for table in MODES}
    extra = {f"iceberg.table.{table}.{key}": value for table, told in MODES.items() for key, value in told.items()}
    space = plain_workspace(
        "mails",
        {
            "topics": ",".join(names),
            "debezium.sink.iceberg.upsert-keep-deletes": "false",
            "iceberg.tables.default-id-columns": "mail",
            **extra,
        },
    )
    inside, chance, live = InProcessSink(spark, space), random.Random(7), dict[int, Row]()
    for batch in range(3):
        records: list[Record] = []
        for place in range(batch * 60, batch * 60 + 60):
            free = sorted(set("abcdefgh") - {row["mail"] for row in live.values()})
            kind = chance.random()
            change: tuple[str, Row | None, Row | None]
            if live and (kind < 0.5 or not free):
                key = chance.choice(sorted(live))
                change = "u", live[key], {**live[key], "n": place, "mail": chance.choice([live[key]["mail"], *free])}
            elif live and kind > 0.8:
                change = "d", live[chance.choice(sorted(live))], None
            else:
                change = "c", None, {"id": place, "mail": chance.choice(free), "n": place}
            op, before, after = change
            if before is not None:
                del live[before["id"]]
            if after is not None:
                live[after["id"]] = after
            records += [_record(topic, place, op, before, after) for topic in names]
        topics.replay(records, create=not batch)
        assert [report.dead_letters for report in inside.run()] == [0]
        expected = sorted((row["mail"], row["id"], row["n"]) for row in live.values())
        for table in names.values():
            rows = [row for row in inside.lake.many(table) if row.get("is_current", True)]
            assert sorted((row["mail"], row["id"], row["n"]) for row in rows) == expected, (table, batch)


@pytest.mark.parametrize("keeps_deletes", tiered(["false", "true"], ["false"]))
def test_a_mail_that_another_row_has_by_now_stays_with_it(
    keeps_deletes: str, topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """The row that had it before is in another partition, which is read later: neither its leaving nor an older change
    takes the mail.
    """
    topic = f"given.{keeps_deletes}"
    options = {"topics": topic, "debezium.sink.iceberg.upsert-keep-deletes": keeps_deletes}
    space = plain_workspace(topic.replace(".", "_"), {**options, "iceberg.tables.default-id-columns": "mail"})
    inside = InProcessSink(spark, space)
    first, second = {"id": 1, "mail": "a"}, {"id": 2, "mail": "a"}
    topics.create({topic: 2})
    for records in (
        [_record(topic, 3, "c", None, first)],
        [_record(topic, 9, "c", None, second, 1)],
        [_record(topic, 5, "u", first, {**first, "n": 1})],
        [_record(topic, 7, "u", {**first, "n": 1}, {**first, "mail": "b"})],
    ):
        topics.replay(records, create=False)
        inside.run()
    found = {row["mail"]: row["id"] for row in inside.lake.many(topic.replace(".", "_")) if row["__deleted"] != "true"}
    assert found == {"a": 2, "b": 1}


@pytest.mark.parametrize("mode", tiered(["equality-delete", "position-delete", "copy-on-write"], ["equality-delete"]))
@pytest.mark.parametrize("together", tiered([True, False], [True]))
def test_a_row_takes_its_large_values_along(
    mode: str, together: bool, topics: Topics, plain_workspace: MakeWorkspace, spark: SparkSession
) -> None:
    """A mail goes from row to row; of the row before an update the event tells the mail only (`REPLICA IDENTITY USING
    INDEX`), and PostgreSQL leaves out what is large.
    """
    topic = f"along.{mode.replace('-', '_')}.{together}".lower()
    options = {"topics": topic, "debezium.sink.iceberg.upsert-keep-deletes": "false"}
    more = {"iceberg.tables.default-id-columns": "mail", "debezium.sink.iceberg.write-mode": mode}
    inside = InProcessSink(spark, plain_workspace(topic.replace(".", "_"), {**options, **more}))
    topics.create({topic: 1})

    def row(key: int | None, mail: str, big: str | None) -> Row:
        return {"id": key, "mail": mail, "big": big}

    created = [
        _record(topic, place, "c", None, row(place, mail, big)) for place, (mail, big) in enumerate(["aA", "bB", "dD"])
    ]
    moves = [(1, "b", "c"), (0, "a", "b"), (1, "c", "a"), (2, "d", "e")]
    updates = [
        _record(topic, place, "u", row(key, old, None), row(key, new, PLACEHOLDER))
        for place, (key, old, new) in enumerate(moves, 3)
    ]
    for records in ([*created, *updates],) if together else (created, updates):
        topics.replay(records, create=False)
        inside.run()
    found = {row["mail"]: (row["id"], row["big"]) for row in inside.lake.many(topic.replace(".", "_"))}
    assert found == {"a": (1, "B"), "b": (0, "A"), "e": (2, "D")}
