"""Pure rules of the sink: table names, where to read on, limits of dead letters, sizes of a job, decoding to rows."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pytest

from connector.errors import FatalError, GapError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.kafka.admin import TopicInfo
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.settings import ErrorSettings, KafkaSettings, TableSettings
from connector.settings.iceberg.new_tables.settings import NewTableSettings
from connector.settings.iceberg.routing import RouteSettings
from connector.settings.iceberg.table_names import TableNameSettings
from connector.sink.convert.decoder import decode
from connector.sink.destinations.iceberg.write_modes.equality_delete import may_exist
from connector.sink.destinations.naming import table_name
from connector.sink.fold.fold import fold
from connector.sink.job.shuffle import pack, split_by_bucket, unpack
from connector.sink.job.task_counts import count_buckets, count_reducers
from connector.sink.microbatch.error_tolerance import ErrorTolerance
from connector.sink.microbatch.planning.task_shares import TableShares
from connector.sink.microbatch.start_offsets import ClusterState, find_starting_offsets, keep_ends_behind
from connector.sink.model.change_rows import MAX_CONCAT_BYTES, ChangeBatch, ChangeOrder, concat_small, gather
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import BatchPlan, DeadLetterRef, FieldRoutes
from serde.events.positions.log_positions import NO_VALUE, unknown_positions
from tests.unit import sink_plans

TABLE = TableSettings(
    names=TableNameSettings("cdc_"),
    new_tables=NewTableSettings(),
    upsert=True,
    keep_deletes=False,
    dedup_column="__source_ts_ns",
    op_field="__op",
    allow_field_addition=True,
    excluded_columns=(),
    offsets_table="o",
)
SECRET = "s3cret"
KAFKA = KafkaSettings("localhost:1", (), None, "", "earliest", {}, {}, {})
ERRORS = ErrorSettings("all", "dead", -1, 0.1, 1000, 0, 0)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({}, "cdc_testc_inventory_customers"),
        ({"case": "upper"}, "CDC_TESTC_INVENTORY_CUSTOMERS"),
        (
            {"destination_regexp": r"_?customers(.*)", "destination_regexp_replace": "people$1"},
            "cdc_testc_inventory_people",
        ),
        ({"destination_regexp": r"\.inventory", "destination_regexp_replace": ""}, "cdc_testc_customers"),
    ],
)
def test_table_names_follow_the_naming_rule(changed: dict[str, Any], name: str) -> None:
    """Prefix, topic with dots as underscores, after the regexp with Java's group references, then the case."""
    names = attrs.evolve(TABLE.names, **changed)
    assert table_name("testc.inventory.customers", attrs.evolve(TABLE, names=names)) == name


def _seen(**changed: Any) -> ClusterState:
    seen = ClusterState("c1", {"t": TopicInfo("t", "id1", 2)}, {("t", 0): 0, ("t", 1): 3}, {("t", 0): 10, ("t", 1): 20})
    return attrs.evolve(seen, **changed)


STORED = KafkaOffsets("c1", {"t": "id1"}, {("t", 0): 4, ("t", 1): 5})


def test_reading_goes_on_where_the_offsets_table_says() -> None:
    """The stored offsets count; a partition that is new is read from its start."""
    seen = _seen(ends={("t", 0): 10, ("t", 1): 20, ("t", 2): 9}, beginnings={("t", 0): 0, ("t", 1): 3, ("t", 2): 0})
    assert find_starting_offsets(STORED, {}, {}, seen, "earliest").offsets == {("t", 0): 4, ("t", 1): 5, ("t", 2): 0}
    assert find_starting_offsets(None, {}, {}, seen, "latest").offsets[("t", 2)] == 9


def test_a_stored_partition_that_the_cluster_does_not_tell_of_stays_where_it_was() -> None:
    """Its topic may be read by another list of topics again: it neither stops the sink, nor is it forgotten."""
    seen = _seen(ends={("t", 0): 10}, beginnings={("t", 0): 0})
    assert find_starting_offsets(STORED, {}, {}, seen, "earliest").offsets == {("t", 0): 4, ("t", 1): 5}


def test_a_batch_never_ends_in_front_of_its_start() -> None:
    """An open transaction puts an end in front of what was read; a partition that is new ends where it does."""
    start, ends = {("t", 0): 7, ("t", 1): 2, ("t", 3): 9}, {("t", 0): 5, ("t", 1): 4, ("t", 2): 3}
    assert keep_ends_behind(start, ends) == {("t", 0): 7, ("t", 1): 4, ("t", 2): 3}


def test_latest_is_where_the_first_start_was() -> None:
    """What appears after it is read from its beginning; not so a topic that is listed since and was not waited for."""
    ends = {("t", 0): 10, ("t", 1): 20, ("t", 2): 9, ("u", 0): 7}
    beginnings = {("t", 0): 0, ("t", 1): 3, ("t", 2): 0, ("u", 0): 2}
    seen = _seen(
        topics={"t": TopicInfo("t", "id1", 3), "u": TopicInfo("u", "id9", 1)}, ends=ends, beginnings=beginnings
    )
    found = find_starting_offsets(STORED, {}, {}, seen, "latest")
    assert found.offsets == {("t", 0): 4, ("t", 1): 5, ("t", 2): 0, ("u", 0): 2}
    listed = find_starting_offsets(STORED, {}, {}, seen, "latest", ("t", "u"))
    assert (listed.offsets["t", 2], listed.offsets["u", 0]) == (0, 7)
    first = find_starting_offsets(None, {}, {}, _seen(), "latest", ("t", "u"))
    assert (first.offsets, dict(first.topic_ids)) == ({("t", 0): 10, ("t", 1): 20}, {"t": "id1", "u": ""})
    there = attrs.evolve(seen, ends={**ends, ("t", 1): 25}, beginnings={**beginnings, ("u", 0): 0})
    waited = find_starting_offsets(first, {}, {}, there, "latest", ("t", "u"))
    assert (waited.offsets["u", 0], waited.topic_ids["u"]) == (0, "id9")
    # By a pattern nothing was there at the first start: all that is there now came later.
    nothing = find_starting_offsets(None, {}, {}, _seen(topics={}, ends={}, beginnings={}), "latest")
    assert find_starting_offsets(nothing, {}, {}, seen, "latest").offsets == beginnings


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_partition_that_has_lost_records_before_it_was_read_stops(reset: str) -> None:
    """One that was added to a topic which is read, and a topic that was waited for, begin at offset 0. Of a topic that
    is named since, and at the first start, nobody waited for what is gone.
    """
    seen = _seen(
        topics={"t": TopicInfo("t", "id1", 3), "u": TopicInfo("u", "id9", 1)},
        ends={("t", 0): 10, ("t", 1): 20, ("t", 2): 9, ("u", 0): 7},
        beginnings={("t", 0): 0, ("t", 1): 3, ("t", 2): 1, ("u", 0): 2},
    )
    find_starting_offsets(None, {}, {}, seen, reset, ("t", "u"))
    with pytest.raises(
        GapError, match=r"t-2 has appeared .* begins at offset 1: retention .*--to stored --execute` with --topic t"
    ):
        find_starting_offsets(STORED, {}, {}, seen, reset, ("t", "u"))
    known = attrs.evolve(STORED, offsets={**STORED.offsets, ("t", 2): 1})
    assert ("u", 0) in find_starting_offsets(known, {}, {}, seen, reset, ("t", "u")).offsets
    with pytest.raises(GapError, match=r"u-0 has appeared .* begins at offset 2: retention"):
        find_starting_offsets(attrs.evolve(known, topic_ids={"t": "id1", "u": ""}), {}, {}, seen, reset, ("t", "u"))


def test_a_position_within_an_open_transaction_is_one_of_the_log() -> None:
    """A sink that read uncommitted records, and is to no more, goes on when the transaction ends."""
    seen = _seen(ends={("t", 0): 2, ("t", 1): 5}, log_ends={("t", 0): 10, ("t", 1): 20})
    assert find_starting_offsets(STORED, {}, {}, seen, "earliest").offsets == STORED.offsets
    assert find_starting_offsets(None, {}, {}, seen, "latest").offsets == seen.ends
    with pytest.raises(GapError, match="t-0 ends at offset 3, before the stored offset 4"):
        find_starting_offsets(STORED, {}, {}, attrs.evolve(seen, log_ends={("t", 0): 3}), "earliest")


@pytest.mark.parametrize("unknown", ["", "AAAAAAAAAAAAAAAAAAAAAA"])
def test_a_topic_whose_id_is_told_later_is_the_same(unknown: str) -> None:
    """Brokers that are upgraded give topics ids, and some services tell none: neither is another topic."""
    before = attrs.evolve(STORED, topic_ids={"t": unknown})
    assert find_starting_offsets(before, {}, {}, _seen(), "earliest").topic_ids == {"t": "id1"}
    hidden = _seen(topics={"t": TopicInfo("t", unknown, 2)})
    assert find_starting_offsets(STORED, {}, {}, hidden, "earliest").offsets == STORED.offsets
    moved = attrs.evolve(STORED, offsets={("t", 0): 2, ("t", 1): 9})
    for one, other in ((before, moved), (attrs.evolve(STORED), attrs.evolve(moved, topic_ids={"t": unknown}))):
        assert one.advance(other).offsets == {("t", 0): 4, ("t", 1): 9}


def test_leader_epochs_outlive_a_restart() -> None:
    """Stored with the offsets and read with them, they hold for exactly these: a log that was cut is noticed later."""
    at, other = ("t", 0), ("t", 1)
    stored = KafkaOffsets.parse(attrs.evolve(STORED, epochs={at: 3, other: 7}).json())
    found = find_starting_offsets(stored, {}, {}, _seen(), "earliest")
    assert found.epochs == {at: 3, other: 7}
    moved = found.advance(KafkaOffsets("c1", {}, {at: 9, other: 5}))
    assert moved.epochs == {other: 7}
    assert moved.advance(KafkaOffsets("c1", {}, {at: 10}, epochs={at: 4})).epochs == {at: 4, other: 7}
    assert found.only(["u"]).epochs == {}
    assert b"epochs" not in STORED.json()


def test_without_an_offsets_table_the_lowest_of_the_tables_counts() -> None:
    """A lost offsets table loses nothing: reading starts where the table that is furthest behind stands."""
    ahead = KafkaOffsets("c1", {"t": "id1"}, {("t", 0): 9, ("t", 1): 4})
    assert find_starting_offsets(None, {"a": STORED, "b": ahead}, {}, _seen(), "earliest").offsets == {
        ("t", 0): 4,
        ("t", 1): 4,
    }


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"cluster_id": "c2"}, "cluster c1"),
        ({"topics": {"t": TopicInfo("t", "id2", 2)}}, "deleted and made again"),
        ({"ends": {("t", 0): 3, ("t", 1): 20}}, "ends at offset 3"),
        ({"beginnings": {("t", 0): 0, ("t", 1): 6}}, "retention"),
    ],
)
def test_a_position_that_does_not_fit_stops(changed: dict[str, Any], says: str) -> None:
    """Another cluster, a recreated topic, offsets ahead of or behind what is there: an error that names it."""
    with pytest.raises(GapError, match=says):
        find_starting_offsets(STORED, {}, {}, _seen(**changed), "earliest")


def test_a_table_behind_the_offsets_table_stops() -> None:
    """A table that was rolled back contradicts the offsets table, and both are named."""
    back = KafkaOffsets("c1", {"t": "id1"}, {("t", 0): 1, ("t", 1): 5})
    with pytest.raises(GapError, match=r"table d\.x is at 1 of t-0 .* at 4 by the offsets table"):
        find_starting_offsets(STORED, {"d.x": back}, {"d.x": STORED}, _seen(), "earliest")


def test_limits_of_dead_letters() -> None:
    """A few are let pass, a large share of a batch or a large sum is not, and tolerance none allows not even one."""
    letters = [DeadLetterRef("t", 0, offset, "VALUE_CONVERTER", "no JSON") for offset in range(101)]
    limits = ErrorTolerance(ERRORS)
    limits.check(letters[:100], TaskMetrics(events=120, dead=100))
    with pytest.raises(FatalError, match=r"limit\.ratio"):
        limits.check(letters, TaskMetrics(events=900, dead=101))
    for _ in range(10):
        limits.check(letters[:95], TaskMetrics(events=1000, dead=95))
        limits.record(95)
    with pytest.raises(FatalError, match=r"limit\.total"):
        limits.check(letters[:51], TaskMetrics(events=100_000, dead=51))
    with pytest.raises(FatalError, match="tolerance is none; t-0 offset 0: no JSON"):
        ErrorTolerance(attrs.evolve(ERRORS, tolerance="none")).check(letters[:1], TaskMetrics(events=1, dead=1))


def test_sizes_of_a_job() -> None:
    """A small batch makes one file; a large one uses every core, and splits keys so that a task's memory is bounded."""
    assert (count_reducers(1, 8), count_buckets(1, 1)) == (1, 1)
    assert (count_reducers(1_000_000, 2), count_buckets(1_000_000, 2)) == (2, 6)
    assert count_reducers(50_000_000, 4) == 4
    assert count_buckets(50_000_000, 4) % 4 == 0


def test_a_table_with_few_events_is_not_split() -> None:
    """Of a batch over many tables each small one is one task's work, and the tasks share a large one."""
    assert count_buckets(2_500, 2) == 1
    names, routing = ["a", "b"], FieldRoutes(RouteSettings(field="f", dynamic=True), {"a": 0, "b": 1}, {})
    batch, shares = MicroBatch(1, {}, {("t", 0): 600_000, ("u", 0): 400_000}), TableShares()
    assert shares.estimate(batch, names, {}, routing) == [500_000, 500_000]
    shares.note(names, TaskMetrics(events=100, rows=Counter({0: 98, 1: 2})))
    assert shares.estimate(batch, names, {}, routing) == [980_000, 20_000]
    assert shares.estimate(batch, names, {"t": 0, "u": 1}, None) == [600_000, 400_000]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (KeyBounds(), [True, True, True]),
        (KeyBounds.nothing(), [False, False, False]),
        (KeyBounds(is_complete=True, bounds={"id": (2, 3)}), [False, True, True]),
    ],
)
def test_only_provably_new_keys_need_no_delete(known: KeyBounds, expected: list[bool]) -> None:
    """Nothing known: any key may exist; an empty table: none; else those inside the bounds."""
    assert may_exist({"id": pa.array([1, 2, 3])}, known).tolist() == expected


# --- decoding to rows, parts --------------------------------------------------------------------------------------


def _plan(**changed: Any) -> BatchPlan:
    columns = {"id": pa.int64(), "v": pa.int32(), "__deleted": pa.string()}
    ranks = {("t", 0): 0, ("odd", 0): 1}
    table = sink_plans.upsert(0, columns, ("id",), **changed)
    return sink_plans.plan(table, refused={"odd": "no table can be made"}, ranks=ranks)


def _run(*records: tuple[Any, Any], topic: str = "t", first: int = 100) -> ConsumerRecords:
    def raw(value: Any) -> bytes | None:
        return value if value is None or isinstance(value, bytes) else orjson.dumps(value)

    keys, values = zip(*records, strict=True)
    offsets = np.arange(first, first + len(records))
    return ConsumerRecords(
        topic, 0, offsets, pa.array(map(raw, keys), pa.binary()), pa.array(map(raw, values), pa.binary())
    )


def _flat(key: int, value: Any, **more: Any) -> tuple[Any, Any]:
    return {"id": key}, {"id": key, "v": value, "__deleted": "false", **more}


def test_events_become_rows_of_the_table() -> None:
    """Columns have the table's types, the key comes from the record key, a tombstone is a delete without a row."""
    outcome = decode(_run(_flat(1, 5), ({"id": 2}, None), _flat(3, None)), _plan())
    assert (outcome.needs, outcome.faults, outcome.metrics.tombstones) == ((), (), 1)
    rows = {r["id"]: r["v"] for part in outcome.parts for r in part.rows.to_pylist()}
    assert rows == {1: 5, 2: None, 3: None}
    assert sorted((int(o), bool(d)) for p in outcome.parts for o, d in zip(p.order.offset, p.deleted, strict=True)) == [
        (100, False),
        (101, True),
        (102, False),
    ]


def test_what_a_table_has_is_left_out_of_a_replayed_batch() -> None:
    """Records below the table's committed offset are not applied again."""
    outcome = decode(_run(_flat(1, 5), _flat(2, 6)), _plan(committed={("t", 0): 101}))
    assert [r["id"] for part in outcome.parts for r in part.rows.to_pylist()] == [2]


def test_a_new_column_is_a_need_not_a_row() -> None:
    """A shape that the table is not ready for is reported with its key, and nothing is written."""
    outcome = decode(_run(_flat(1, 5, note="x")), _plan())
    (need,) = outcome.needs
    assert "note" in need.row.names
    assert need.key is not None
    assert need.key.names == ["id"]
    assert not outcome.parts


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ((None, {"id": 1, "v": 1, "__deleted": "false"}), "has no key"),
        (({"other": 1}, {"id": 1, "v": 1, "__deleted": "false"}), "has no id"),
        (({"id": "x"}, {"id": 1, "v": 1, "__deleted": "false"}), "field id: not a number"),
        (({"id": 1}, {"id": 1, "v": SECRET, "__deleted": "false"}), "field v"),
        (({"id": 1}, b"\xff\x00"), ""),
    ],
)
def test_one_bad_record_is_a_fault_and_the_others_go_on(record: tuple[Any, Any], says: str) -> None:
    """The bad record is named by its row and a reason without content; its neighbours become rows."""
    outcome = decode(_run(_flat(7, 1), record, _flat(8, 2)), _plan())
    (fault,) = outcome.faults
    assert fault.row == 1
    assert says in fault.reason
    assert SECRET not in fault.reason
    assert sorted(r["id"] for part in outcome.parts for r in part.rows.to_pylist()) == [7, 8]


def test_text_that_may_be_base64_is_no_decimal() -> None:
    """Without a schema "1234" may be the base64 of 14118904: only text with a point is a number with a scale."""
    columns = pa.schema([("id", pa.int64()), ("v", pa.decimal128(10, 2)), ("w", pa.decimal128(10, 0))])
    schema = build_table_schema(columns, ("id",), frozenset(), nanoseconds=False)
    plan = _plan()
    layout = attrs.evolve(plan.tables[0].layout, schema_json=schema.model_dump_json())
    plan = attrs.evolve(plan, tables=(attrs.evolve(plan.tables[0], layout=layout),), evolve=False)
    following = attrs.evolve(plan, evolve=True)
    told = [{"v": "1234"}, {"v": "12.34"}, {"v": 5.5}, {"v": None, "w": "12"}]
    outcome = decode(_run(*(({"id": n}, {"id": n, **row}) for n, row in enumerate(told))), plan)
    assert (outcome.faults, outcome.metrics.nulled) == ((), 1)
    rows = sorted((row for part in outcome.parts for row in part.rows.to_pylist()), key=lambda row: row["id"])
    assert [row["v"] for row in rows] == [None, Decimal("12.34"), Decimal("5.50"), None]
    assert [row["w"] for row in rows] == [None, None, None, Decimal(12)]
    for few in (told[:2], told[:3]):
        followed = decode(_run(*(({"id": n}, {"id": n, **row}) for n, row in enumerate(few))), following)
        assert [fault.row for fault in followed.faults] == [0]
        held = [value for p in followed.parts for value in p.rows.column("v").to_pylist()]
        assert held == [Decimal("12.34"), Decimal("5.50")][: len(few) - 1]


def test_a_fraction_in_a_key_is_a_fault_not_another_type() -> None:
    """One key that is no whole number does not make the identifier field of a new table a double."""
    plan = attrs.evolve(_plan(), tables=(), routes={})
    (need,) = decode(_run(_flat(1, 1), ({"id": 1.5}, {"id": 1, "v": 1}), _flat(2, 2)), plan).needs[:1]
    assert need.key is not None
    assert need.key.field("id").type == pa.int64()


def test_a_topic_without_a_table_gives_faults() -> None:
    """Every record of a refused topic is a dead letter with the reason."""
    outcome = decode(_run(_flat(1, 1), topic="odd"), _plan())
    assert [fault.reason for fault in outcome.faults] == ["no table can be made"]


def _part(ids: list[int], offsets: list[int], image: list[bool] | None = None) -> ChangeBatch:
    columns = pa.schema([("id", pa.int64()), ("u", pa.uuid())])
    uuids = pa.array([bytes([i]) * 16 for i in ids], pa.binary(16)).cast(pa.uuid())
    rows = pa.RecordBatch.from_arrays([pa.array(ids), uuids], schema=columns)
    unknown = np.full(len(ids), NO_VALUE)
    op = np.full(len(ids), ord("u"), np.uint8)
    there = np.array(image or [True] * len(ids))
    where = (np.zeros(len(ids), np.int64), np.array(offsets))
    return ChangeBatch(rows, ChangeOrder(*where, unknown, unknown, unknown_positions(len(ids)), op), ~there, there)


def test_a_part_travels_as_it_is() -> None:
    """Packing and unpacking keeps rows, order and marks, for types that Arrow calls extensions too."""
    part = _part([1, 2], [10, 11], [True, False])
    back = unpack(pack(part), part.rows.schema)
    assert back.rows.equals(part.rows)
    assert back.order.offset.tolist() == [10, 11]
    assert (back.deleted.tolist(), back.image.tolist()) == ([False, True], [True, False])


def test_fold_over_parts_counts_through_them() -> None:
    """The last change of a key wins wherever it is, and a tombstone stands on the last row of its key."""
    folded = fold([_part([1, 2], [1, 2]), _part([1, 3], [3, 4], [False, True])], ["id"])
    assert folded.winners.tolist() == [1, 2, 3]
    assert folded.images.tolist() == [1, 0, 3]
    assert [r["id"] for p in gather(folded.parts, folded.winners) for r in p.rows.to_pylist()] == [2, 1, 3]


def test_small_parts_joined_fold_as_they_do_alone() -> None:
    """Parts of few bytes become one, with every row, place and mark; a single one and large ones stay as they are."""
    parts = [_part([1, 2], [1, 2]), _part([1, 3], [3, 4], [False, True])]
    (one,) = concat_small(parts)
    assert one.rows.column("id").to_pylist() == [1, 2, 1, 3]
    assert (one.order.offset.tolist(), one.image.tolist()) == ([1, 2, 3, 4], [True, True, False, True])
    alone, together = fold(parts, ["id"]), fold([one], ["id"])
    assert together.winners.tolist() == alone.winners.tolist()
    assert together.images.tolist() == alone.images.tolist()
    assert concat_small(parts[:1]) == parts[:1]
    many = list(range(MAX_CONCAT_BYTES // 40))
    large = [_part([1] * len(many), many)] * 2
    assert concat_small(large) == large


def test_a_key_is_in_the_same_bucket_everywhere() -> None:
    """Buckets depend on the key alone, so that parts of different tasks meet."""
    layout = _plan().tables[0].layout
    keys = [("id", layout.schema.find_type("id"))]
    one = {
        i: b
        for b, p in split_by_bucket(_part(list(range(50)), list(range(50))), keys, 7)
        for i in p.rows["id"].to_pylist()
    }
    two = {i: b for b, p in split_by_bucket(_part([49, 3], [1, 2]), keys, 7) for i in p.rows["id"].to_pylist()}
    assert set(one.values()) == set(range(7))
    assert two == {i: one[i] for i in (49, 3)}


@pytest.mark.parametrize("buckets", [1, 3])
def test_some_rows_of_a_part_are_split_as_a_part_of_them_is(buckets: int) -> None:
    """Rows that a fold keeps are taken and split in one step."""
    keys = [("id", _plan().tables[0].layout.schema.find_type("id"))]
    part, rows = _part([i % 7 for i in range(40)], list(range(40))), np.array([0, 3, 4, 17, 39])
    for chosen in (rows, np.arange(40)):
        made, wanted = split_by_bucket(part, keys, buckets, chosen), split_by_bucket(part.take(chosen), keys, buckets)
        assert [(b, p.order.offset.tolist(), p.rows) for b, p in made] == [
            (b, p.order.offset.tolist(), p.rows) for b, p in wanted
        ]
