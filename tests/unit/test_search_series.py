"""Names that stand for several indexes, without a node: aliases, data streams, names with a time."""

from __future__ import annotations

from datetime import UTC, date, datetime
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from connector.errors import FatalError, RetriableError
from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.indexes.index_admin import IndexAdmin, IndexInfo, encode_meta, join_names, parse_index
from connector.opensearch.indexes.index_identity import decode_ids, encode_ids, explain_loss
from connector.opensearch.indexes.index_names import IndexNamePattern
from connector.opensearch.indexes.index_templates import DatedIndexAdmin, merge_properties
from connector.sink.destinations.opensearch.write.timestamps import TimestampRule
from connector.sink.model.change_rows import ChangeBatch, ChangeOrder
from serde.events.positions.log_positions import NO_VALUE, unknown_positions

NOTED = {"versions": "source"}


def _index(created: int, aliases: dict[str, Any] | None = None, *, noted: bool = False, **more: Any) -> dict[str, Any]:
    mappings = {"properties": {f"f{created}": {"type": "long"}}, **({"_meta": encode_meta(NOTED)} if noted else {})}
    settings = {"index": {"creation_date": str(created), "uuid": f"u{created}"}}
    return {"aliases": aliases or {}, "mappings": mappings, "settings": settings, **more}


def test_an_index_is_written_by_its_name() -> None:
    """What is an index itself is written as ever, and no look-up is needed."""
    index = parse_index("a", {"a": _index(1, noted=True)})
    assert (index.style(partial=False), index.noted) == (WriteOptions("a"), NOTED)


def test_an_alias_of_one_index_is_written_by_the_indexs_name() -> None:
    """So that a rollover in the middle of a batch parts no documents that are looked for in one place."""
    index = parse_index("a", {"a-1": _index(1, {"a": {}})})
    assert index.style(partial=True) == WriteOptions("a-1", partial=True)


def test_a_rolled_over_alias() -> None:
    """New documents go to the write index; all indexes are known, oldest first; the newest note counts."""
    told = {
        "a-3": _index(3, {"a": {"is_write_index": True}}),
        "a-1": _index(1, {"a": {"is_write_index": False}}),
        "a-2": _index(2, {"a": {"is_write_index": False}}, noted=True),
    }
    index = parse_index("a", told)
    assert index.style(partial=False) == WriteOptions("a-3", over="a", behind=("a-1", "a-2", "a-3"))
    assert (index.noted, index.properties, index.rolled) == (NOTED, {"f3": {"type": "long"}}, {"f2": {"type": "long"}})
    told["a-3"]["mappings"]["_meta"] = encode_meta(NOTED)
    assert parse_index("a", told).rolled is None


class _Now(IndexAdmin):
    """A cluster in which an alias stands for something else by now."""

    def __init__(self, now: IndexInfo) -> None:
        self._now = now

    def current(self, index: IndexInfo) -> IndexInfo:
        return index if not index.behind else self._now


def test_an_index_that_leaves_its_alias_sends_the_batch_again() -> None:
    """What was sent to it is behind no alias; an index that came, or a name without alias, is all right."""
    before, rolled, dropped = (IndexInfo("a", {}, {}, behind=tuple(names)) for names in ("12", "123", "23"))
    _Now(rolled).confirm_indexes(before)
    _Now(rolled).confirm_indexes(IndexInfo("a", {}, {}))
    with pytest.raises(RetriableError, match="1 left alias a"):
        _Now(dropped).confirm_indexes(before)


@pytest.mark.parametrize(
    ("aliases", "text"),
    [
        ([{}, {}], "set is_write_index on one"),
        ([{"is_write_index": False}], "set is_write_index on one"),
        ([{}, {"is_write_index": True, "filter": {"term": {"a": 1}}}], "has a filter"),
        ([{"index_routing": "1"}], "has a filter or a routing"),
    ],
)
def test_aliases_that_documents_cannot_be_kept_behind(aliases: list[dict[str, Any]], text: str) -> None:
    """Without an index that takes documents, or with a part of them hidden, the sink stops and says what to do."""
    with pytest.raises(FatalError, match=text):
        parse_index("a", {f"a-{n}": _index(n, {"a": told}) for n, told in enumerate(aliases)})


def test_a_data_stream() -> None:
    """A stream is only added to, and its indexes are looked through under its name."""
    told = {".ds-s-000001": _index(1, data_stream="s"), ".ds-s-000002": _index(2, data_stream="s", noted=True)}
    assert parse_index("s", told).style(partial=False) == WriteOptions("s", create=True, over="s")


def test_names_with_a_time() -> None:
    """The time is UTC's; the expression fits the indexes of one name, and not those of a longer one."""
    pattern = IndexNamePattern("${topic}-${timestamp}", "yyyy.MM.dd-HH")
    times = pa.array([datetime(2024, 2, 29, 23, 59, tzinfo=UTC), None], pa.timestamp("us", "UTC"))
    assert pattern.indexes("Shop.Orders", times).to_pylist() == ["shop.orders-2024.02.29-23", None]
    fits = pattern.regexp("shop").fullmatch
    assert [bool(fits(n)) for n in ("shop-2024.02.29-23", "shop-items-2024.02.29-23", "shop-x")] == [True, False, False]
    assert IndexNamePattern("${timestamp}_${topic}", "yyyy").wildcard("a") == "*_a"


def _part(dedup: list[int], **columns: Any) -> ChangeBatch:
    none, rows = np.full(len(dedup), NO_VALUE), pa.RecordBatch.from_pydict({"id": list(range(len(dedup))), **columns})
    order = ChangeOrder(
        none, none, np.array(dedup), none, unknown_positions(len(dedup)), np.zeros(len(dedup), np.uint8)
    )
    return ChangeBatch(rows, order, np.zeros(len(dedup), np.bool_), np.ones(len(dedup), np.bool_))


def _days(dating: TimestampRule, part: ChangeBatch, dedup_column: str = "__source_ts_ns") -> list[str | None]:
    return [None if t is None else f"{t:%Y-%m-%d}" for t in dating.times(part, dedup_column).to_pylist()]


def test_the_time_of_a_row() -> None:
    """The first field that has one; the time at the source where that may stand in; none where there is none."""
    millis = 1_700_000_000_000
    part = _part(
        [millis * 10**6, NO_VALUE, NO_VALUE, NO_VALUE],
        n=[None, millis, None, 2**62],
        d=[date(2024, 1, 1), date(2024, 1, 2), None, None],
        text=["2024-03-01T00:30:00+01:00", "soon", "2024-03-03 10:00:00", None],
    )
    assert _days(TimestampRule(("n", "d"), source=False), part) == ["2024-01-01", "2023-11-14", None, None]
    assert _days(TimestampRule(("absent", "text"), source=True), part) == ["2024-02-29", None, "2024-03-03", None]
    assert _days(TimestampRule((), source=True), part) == ["2023-11-14", None, None, None]
    assert _days(TimestampRule((), source=True), part, "lsn") == [None] * 4
    assert _days(TimestampRule((), source=False), part) == [None] * 4


def test_a_date_without_end_is_no_time() -> None:
    """PostgreSQL's `infinity` is a date like any other to Debezium, and no time of any clock: the next field counts."""
    days = pa.array([2**31 - 1, -(2**31), 19_723], pa.int32()).cast(pa.date32())
    part = _part([NO_VALUE] * 3, d=days, other=[date(2024, 1, 2), None, None])
    assert _days(TimestampRule(("d", "other"), source=False), part) == ["2024-01-02", None, "2024-01-01"]


def test_fields_of_a_template_are_added_to() -> None:
    """Fields that are known keep their types; new ones come, below others too."""
    known = {"a": {"type": "long"}, "o": {"properties": {"x": {"type": "long"}}}}
    wanted = {"a": {"type": "text"}, "b": {"type": "text"}, "o": {"properties": {"y": {"type": "text"}}}}
    inner = {"x": {"type": "long"}, "y": {"type": "text"}}
    assert merge_properties(known, wanted) == {"a": {"type": "long"}, "b": {"type": "text"}, "o": {"properties": inner}}


class _Indices:
    """The indexes that a name stands for, and the actions that change it."""

    def __init__(self, there: dict[str, Any]) -> None:
        self._there = there
        self.actions: list[Any] = []

    def refresh(self, index: str) -> None:
        pass

    def get(self, index: str, params: Any) -> dict[str, Any]:
        return self._there

    def update_aliases(self, body: Any) -> None:
        self.actions += body["actions"]


class _Swapping(IndexAdmin):
    """A cluster that has these indexes."""

    def __init__(self, indices: _Indices) -> None:
        self._client = SimpleNamespace(indices=indices)


def test_a_swap_keeps_the_other_aliases_of_a_name() -> None:
    """Searches have aliases of their own, with filters: they go over to the fresh index as they are."""
    own, mine = {"filter": {"term": {"open": True}}}, {"a": {"is_write_index": True}}
    indices = _Indices({"a-1": _index(1, {"a": {}, "search-a": {}}), "a-2": _index(2, {**mine, "open-a": own})})
    assert _Swapping(indices).swap_alias("a", "a-9") == ["a-1", "a-2"]
    added = {one["alias"]: one for one in (action["add"] for action in indices.actions if "add" in action)}
    how = {"a": {"is_write_index": True}, "search-a": {}, "open-a": own}
    assert added == {name: {"index": "a-9", "alias": name, **more} for name, more in how.items()}
    assert [action["remove_index"]["index"] for action in indices.actions[:2]] == ["a-1", "a-2"]


def test_settings_that_a_fresh_index_has_not_are_told() -> None:
    """Those that were set on the index before, or differ; none that OpenSearch gives each index, and no block."""
    own = {"uuid": "u1", "creation_date": "1", "version": {"created": "136"}, "gc_deletes": "60s"}
    before = {"index": {**own, "number_of_replicas": "2", "analysis": {"analyzer": {"de": {"type": "german"}}}}}
    before["index"] |= {"blocks": {"write": "true"}, "number_of_shards": "1"}
    fresh = {"index": {"uuid": "u2", "gc_deletes": "1h", "number_of_replicas": "1", "number_of_shards": "1"}}
    answers = {"a": {"a-1": {"settings": before}}, "a-9": {"a-9": {"settings": fresh}}}
    swapping = _Swapping(cast("_Indices", SimpleNamespace(get=lambda index, params=None: answers[index])))
    assert swapping.find_lost_settings("a", "a-9") == ["analysis.analyzer.de.type", "number_of_replicas"]


def test_what_others_noted_of_an_index_stays() -> None:
    """OpenSearch replaces a mapping's `_meta` as a whole: what is not ours is written with our note."""
    put: list[Any] = []
    indices = SimpleNamespace(put_mapping=lambda index, body: put.append(body["_meta"]))
    own = _index(1, noted=True)
    own["mappings"]["_meta"]["team"] = {"name": "shop"}
    _Swapping(cast("_Indices", indices)).grow(parse_index("a", {"a": own}), {}, {"versions": "offset"})
    assert put == [{"team": {"name": "shop"}, **encode_meta({"versions": "offset"})}]


class _Days:
    """Indexes with a day in their names, each with a mapping; what is added to them, and the template."""

    def __init__(self, properties: dict[str, dict[str, Any]], closed: str) -> None:
        self._properties, self._closed = properties, closed
        self.added: dict[str, Any] = {}

    def get_alias(self, index: str, params: dict[str, str]) -> dict[str, Any]:
        hidden = {self._closed} if params.get("expand_wildcards") == "open" else set()
        return {name: {"aliases": {}} for name in self._properties.keys() - hidden}

    def get_mapping(self, index: str, params: object) -> dict[str, Any]:
        return {name: {"mappings": {"properties": own}} for name, own in self._properties.items() if own}

    def put_mapping(self, index: str, body: Any) -> None:
        self.added[index] = body["properties"]

    def put_index_template(self, name: str, body: Any) -> None:
        self.added[name] = body["template"]["mappings"]["properties"]


class _Daily(DatedIndexAdmin):
    """A cluster that has these indexes."""

    def __init__(self, indices: _Days) -> None:
        self._client, self._settings = SimpleNamespace(indices=indices), {}
        self._pattern = IndexNamePattern("${topic}-${timestamp}", "yyyyMMdd")


def test_each_index_of_a_group_gets_the_fields_that_it_lacks() -> None:
    """Fields that an index has keep their types, whoever made it; closed indexes and those of others are left alone."""
    long, whole = {"type": "long"}, {"type": "integer"}
    old = {"a-20240101": {"id": whole}, "a-20240102": {}, "a-20240103": {"id": long, "n": long}, "a-other": {}}
    indices = _Days({**old, "a-20231231": {}}, "a-20231231")
    _Daily(indices).create("a", {"id": dict(long), "n": dict(long)}, NOTED)
    wanted = {"id": long, "n": long}
    assert indices.added == {"a-20240101": {"n": long}, "a-20240102": wanted, "icebridge-a": wanted}


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ({}, {}, None),
        ({}, {"a": "1"}, None),
        ({"a": "1"}, {"a": "1"}, None),
        ({"a": "1"}, {}, "index a is gone"),
        ({"a": "1"}, {"a": "2"}, "index a was deleted and made again"),
        ({"a": "1"}, {"a-1": "2"}, None),
        ({"a-1": "1"}, {"a-1": "1", "a-2": "2"}, None),
        ({"a-1": "1", "a-2": "2"}, {"a-3": "3"}, None),
        ({"a-1": "1", "a-2": "2"}, {"a-1": "1", "a-2": "3"}, "index a-2 was deleted and made again"),
        ({"a-1": "1"}, {"a": "2"}, "a was an alias of a-1"),
    ],
)
def test_what_tells_that_documents_are_gone(before: dict[str, str], now: dict[str, str], text: str | None) -> None:
    """A name without index, another index of the same name; an alias may roll over, lose old indexes, take a name."""
    reason = explain_loss("a", decode_ids(encode_ids(before)), now)
    assert reason is None if text is None else reason is not None and text in reason


def test_many_names_are_asked_for_in_few_requests() -> None:
    """Each name once, in order, in lines that a node takes, also when each of its letters is escaped."""
    names = [f"{'é' * 100}{number}" for number in range(40)] + ["a"] * 3
    lines = list(join_names(names))
    assert ",".join(lines).split(",") == names
    assert all(len(quote(line)) < 4_000 for line in lines) and len(lines) < 12
    assert list(join_names([])) == []
