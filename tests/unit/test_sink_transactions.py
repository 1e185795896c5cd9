"""What transaction topics tell: odd ends say nothing, and those beside them are read exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import attrs
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from connector.errors import RetriableError
from connector.settings.iceberg.routing import RouteSettings
from connector.settings.kafka.transactions import TransactionSettings
from connector.sink.convert.decoder import decode
from connector.sink.microbatch.transactions import transaction_task, transactions
from connector.sink.microbatch.transactions.transaction_task import TRANSACTION_SCHEMA
from connector.sink.microbatch.transactions.transactions import Transactions
from connector.sink.model.micro_batch import MicroBatch
from connector.sink.model.plan import BatchPlan
from tests.unit.json_messages import framed
from tests.unit.sink_plans import append, dead, plan, routing, rows, run, upsert

LISTS = [{"data_collection": "public.t", "event_count": 2}]
GOOD = {"status": "END", "id": "5:1", "event_count": 2, "data_collections": LISTS, "ts_ms": 5}
ODD: list[Any] = [
    *([1], "x", 5, b"{", {}, {"status": "END"}, {**GOOD, "status": 1}, {**GOOD, "status": ["END"]}),
    *({**GOOD, "id": None}, {**GOOD, "id": {"a": 1}}, {**GOOD, "ts_ms": "x"}, {**GOOD, "ts_ms": [1]}),
    *({**GOOD, "data_collections": lists} for lists in (None, {"a": 1}, ["x"], [[1]], [None], [{}], [])),
    *({**GOOD, "data_collections": [{**LISTS[0], "event_count": count}]} for count in ("x", 1.5, 2**63, None, [2])),
    {**GOOD, "data_collections": [{"data_collection": None, "event_count": 1}]},
    b'{"status":"END","id":"1","data_collections":' + b"[" * 50_000,
]


@attrs.frozen
class Chunks:
    """A feed whose only share is one run of records."""

    given: Any

    def chunks(self, _: int) -> Iterator[Any]:
        """Give the run."""
        yield self.given


def _told(*values: Any, topic: str = "tx") -> list[dict[str, Any]]:
    made: BatchPlan = plan(append(0, {"id": pa.int64()}), ranks={("server.public.t", 0): 0})
    made = attrs.evolve(made, assignment=Chunks(run(*values, topic=topic)))
    numbers = iter([pa.RecordBatch.from_pydict({"id": [0]})])
    batches = list(transaction_task.transaction_task(made, "tx")(numbers))
    assert all(batch.schema == TRANSACTION_SCHEMA for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_ends_beside_odd_ones_are_read_exactly(odd: Any) -> None:
    """No record of a transaction topic ends a task, or changes what the end beside it says, however many there are."""
    assert _told(odd) == []
    for values in ((GOOD, odd), (odd, odd, GOOD)):
        (end,) = _told(*values)
        told = {name: end[name] for name in ("ends", "id", "said", "whole", "count", "ts_ms", "first")}
        first = 100 + values.index(GOOD)
        said = {"ends": True, "id": "5", "said": "public.t", "whole": "public.t", "count": 2, "ts_ms": 5}
        assert told == {**said, "first": first}


@pytest.mark.parametrize("framed", [False, True], ids=["bare", "with schema"])
def test_cloud_events_are_in_their_transactions(framed: bool) -> None:
    """Their attributes name it, their table and their place in it."""
    image = {"type": "struct", "optional": True, "fields": [{"field": "id", "type": "int64"}]}
    schema = {"type": "struct", "fields": [{**image, "field": side} for side in ("before", "after")]}
    images = {"before": None, "after": {"id": 1}}
    told = {"id": "1", "source": "/debezium/postgresql/p", "specversion": "1.0", "type": "DataChangeEvent"}
    told |= {"iodebeziumop": "c", "iodebeziumdb": "d", "iodebeziumschema": "public", "iodebeziumtable": "t"}
    told |= {"iodebeziumtxid": "5:1", "data": {"schema": schema, "payload": images} if framed else images}
    (found,) = _told(*({**told, "iodebeziumtxtotalorder": number} for number in "12"), topic="t")
    assert (found["id"], found["count"], found["orders"]) == ("5", 2, [1, 2])
    assert (found["collection"], found["with_db"], found["whole"]) == ("public.t", "d.t", "d.public.t")


@pytest.mark.parametrize("odd", [7, "x", [], {"id": None}, {"id": {"a": 1}}, {"total_order": "x"}])
def test_events_with_odd_transactions_are_in_none(odd: Any) -> None:
    """Beside them the transactions of other events are counted."""
    event = {"op": "c", "source": {"db": "d", "schema": "public", "table": "t"}, "after": {"id": 1}}
    assert _told({**event, "transaction": odd}, topic="t") == []
    whole = {**event, "transaction": {"id": "5:1", "total_order": 1}}
    found = _told(whole, whole, {**event, "transaction": odd}, topic="t")
    assert [(row["id"], row["count"]) for row in found] == [("5", 2)]


def test_numbers_of_events_are_told_where_all_have_one() -> None:
    """They tell what came again, in envelopes and in flattened events; where one lacks its number none is told."""
    event = {"op": "c", "source": {"db": "d", "schema": "public", "table": "t"}, "after": {"id": 1}}
    numbered = [{**event, "transaction": {"id": "5:1", "total_order": number}} for number in (1, 2, 1)]
    (found,) = _told(*numbered, topic="t")
    assert (found["count"], found["orders"]) == (3, [1, 2])
    (found,) = _told(*numbered, {**event, "transaction": {"id": "5:2"}}, topic="t")
    assert (found["count"], found["orders"]) == (4, None)
    for name in ("__total_order", "__transaction_total_order"):
        flat = [{"id": number, "__transaction_id": "7", "__table": "t", name: number} for number in (4, 4)]
        (found,) = _told(*flat, topic="t")
        assert (found["id"], found["count"], found["orders"]) == ("7", 2, [4])


@pytest.mark.parametrize(
    ("event", "topic"),
    [
        (
            {"op": "c", "source": {"db": "shop", "collection": "a.b"}, "after": "{}", "transaction": {"id": "7"}},
            "mongo.shop.a.b",
        ),
        ({"op": "c", "source": None, "after": {"id": 1}, "transaction": {"id": "7"}}, "server.d.shop.t"),
        ({"id": 1, "__transaction_id": "7"}, "server.shop.t"),
    ],
    ids=["mongodb", "no source", "flattened"],
)
def test_events_that_tell_no_table_are_of_their_topics(event: Any, topic: str) -> None:
    """An end that names the table is met by them; the transaction was waited for in vain."""
    (found,) = _told(event, topic=topic)
    assert found["id"] == "7"
    assert ".".join(topic.split(".")[1:]) in (found["collection"], found["with_db"], found["whole"])


def test_numbers_of_events_with_schemas_are_told() -> None:
    """They tell what came again where schemas tell which fields of events are read."""
    event = {"before": None, "after": {"id": 1}, "op": "c", "source": {"db": "d", "schema": "public", "table": "t"}}
    source = [{"field": name, "type": "string"} for name in ("db", "schema", "table")]
    block = [{"field": "id", "type": "string"}, {"field": "total_order", "type": "int64"}]
    images = {"before": [{"field": "id", "type": "int64"}], "after": [{"field": "id", "type": "int64"}]}
    structs = {**images, "source": source, "transaction": block}
    fields = [{"field": name, "type": "struct", "optional": True, "fields": own} for name, own in structs.items()]
    fields.append({"field": "op", "type": "string"})
    numbered = [{**event, "transaction": {"id": "5:1", "total_order": number}} for number in (1, 2, 1)]
    (found,) = _told(*(framed(fields, one, "d.public.t.Envelope") for one in numbered), topic="t")
    assert (found["count"], found["orders"]) == (3, [1, 2])


def test_what_was_told_of_records_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch that begins at a cut only what lies behind the last look is read, of topic-partitions that are cut."""
    monkeypatch.setattr(transactions, "is_from", lambda offsets: offsets)
    at, other = ("server.public.t", 0), ("tx", 0)
    cutter = Transactions(Mock(), TransactionSettings("tx", 1_000))
    batch = MicroBatch(0, {at: 10, other: 5}, {at: 40, other: 9})
    assert cutter.find_unread(batch) == batch
    told = Mock()
    cutter._keep(batch, told, {at: 30})
    following = MicroBatch(1, {at: 30, other: 9}, {at: 60, other: 12})
    assert cutter.find_unread(following).start == {at: 40, other: 9}
    assert cutter.find_unread(MicroBatch(1, {at: 30}, {at: 35})).start == {at: 35}
    cutter._keep(following, told, {})
    assert cutter.find_unread(following) == following


def test_what_was_told_stays_where_the_next_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try that fails as its counts are kept changes nothing: the next one reads what nobody counted, no less."""
    monkeypatch.setattr(transactions, "is_from", lambda offsets: offsets)
    at = ("server.public.t", 0)
    cutter = Transactions(Mock(), TransactionSettings("tx", 1_000))
    batch, following = MicroBatch(0, {at: 10}, {at: 40}), MicroBatch(1, {at: 30}, {at: 60})
    cutter._keep(batch, Mock(), {at: 30})
    kept, failing = cutter._kept, Mock()
    failing.where.return_value.localCheckpoint.side_effect = RetriableError("a broker is away")
    with pytest.raises(RetriableError):
        cutter._keep(following, failing, {at: 50})
    assert (cutter._kept, cutter.find_unread(following).start) == (kept, {at: 40})


@pytest.mark.parametrize("kind", [Py4JJavaError, PySparkException])
def test_what_was_told_is_read_again_once_an_executor_took_it_along(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    """Spark's SparkException is none of those that PySpark makes its own; without such a loss it is raised as it is."""
    told = "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_1_0 not found!"
    lost = type("Lost", (kind,), {"__init__": lambda _: None, "__str__": lambda _: told})
    monkeypatch.setattr(transactions, "is_from", lambda offsets: offsets)
    monkeypatch.setattr(transactions, "F", Mock())
    monkeypatch.setattr(transactions, "transaction_task", Mock())
    monkeypatch.setattr(Transactions, "_cut_batch", Mock(side_effect=lost()))
    cutter, made = Transactions(Mock(), TransactionSettings("tx", 1_000)), Mock()
    made.assignment.shares = [()]
    batch = MicroBatch(0, {("server.public.t", 0): 10}, {("server.public.t", 0): 40})
    with pytest.raises(lost):
        cutter.whole(batch, made)
    cutter._keep(batch, Mock(), {("server.public.t", 0): 30})
    with pytest.raises(RetriableError, match=r"^transaction metadata was lost with an executor: "):
        cutter.whole(batch, made)
    assert cutter.find_unread(batch) == batch


def test_what_nobody_foresaw_costs_those_records_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on which reading raises is read in halves, down to the records that are why."""
    read = transaction_task._read_ends

    def raising(given: Any, block: Any, topics: Any) -> Any:
        if b"guilty" in b"".join(value or b"" for value in given.value.to_pylist()):
            raise KeyError("secret")
        return read(given, block, topics)

    monkeypatch.setattr(transaction_task, "_read_ends", raising)
    ends = [{**GOOD, "id": name} for name in ("1", "2", "guilty", "3")]
    assert [row["id"] for row in _told(*ends)] == ["1", "2", "3"]


NO_METADATA: list[Any] = [
    *([1], "x", 5, b"{", {}, {"status": "END"}, {**GOOD, "status": 1}, {**GOOD, "status": ["END"]}, None),
    *({**GOOD, "id": None}, {**GOOD, "id": {"a": 1}}, {**GOOD, "status": "DONE"}, {"id": 1, "name": "a row"}),
    {"op": "c", "source": {"db": "d", "schema": "public", "table": "t"}, "after": {"id": 1}},
    {"op": "t", "source": {"db": "d", "schema": "public", "table": "t"}, "before": None, "after": None},
]


@pytest.mark.parametrize("odd", NO_METADATA, ids=range(len(NO_METADATA)))
@pytest.mark.parametrize("known", [False, True, None], ids=["new", "known", "routed"])
def test_what_is_no_metadata_is_a_dead_letter(odd: Any, known: bool | None) -> None:
    """In the transaction topic it makes no row, table, truncate or delete; the metadata beside it counts."""
    table = upsert(0, {"id": pa.int64(), "name": pa.string()}, ("id",))
    changed: dict[str, Any] = {"routes": {"tx": 0} if known else {}, "ranks": {("tx", 0): 0}}
    if known is None:
        changed["routing"] = routing(RouteSettings(tables=(("d.t", None),)), "d.t")
    made = plan(table, **changed, transaction_topic="tx")
    begin = {"status": "BEGIN", "id": "5:1", "event_count": None, "data_collections": None, "ts_ms": 5}
    values = (begin, odd, GOOD, odd)
    outcome = decode(run(*values, keys=[{"id": 1}] * len(values), topic="tx"), made)
    assert set(dead(outcome)) == {1, 3}
    assert (rows(outcome), outcome.needs, outcome.truncates, outcome.progress) == ([], (), (), ())
    assert (outcome.metrics.ignored, outcome.metrics.events) == (2, len(values))
