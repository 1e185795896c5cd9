"""MongoDB's updates without their document -> rows of documents as columns: what the page and the manual document.

Debezium's MongoDB page, "update events" with `capture.mode=change_streams`; MongoDB's manual, "Change events", update.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pytest

from connector.settings.converters.event_format import DocumentMode, EventSettings
from connector.sink.convert.decoder import decode
from connector.sink.fold.fold import fold
from connector.sink.fold.values.document_patches import patch_rows
from connector.sink.fold.values.row_lives import find_needed_rows
from connector.sink.fold.values.unavailable_values import fill_in_batch, mark_unavailable
from connector.sink.job.shuffle import pack, unpack
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan
from serde.events.images import document_patches
from serde.events.images.document_patches import change_document, find_members, format_partial_document, format_patch
from tests.unit import sink_plans
from tests.unit.folds import select_rows_to_keep
from tests.unit.test_sink_documents import SOURCE, with_schema

TYPES = {
    "_id": pa.string(),
    "a": pa.int64(),
    "b": pa.int64(),
    "s": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "n": pa.struct([("x", pa.int64()), ("y", pa.list_(pa.int64())), ("z", pa.struct([("q", pa.int64())]))]),
    "items": pa.list_(pa.struct([("k", pa.int64()), ("t", pa.string())])),
    "__deleted": pa.string(),
}
KEYS = ("_id",)
DOCUMENT = {
    "_id": 1,
    "a": 1,
    "b": 9007199254740993,
    "s": "text",
    "at": {"$date": 1_700_000_000_000},
    "n": {"x": 1, "y": [1, 2, 3]},
    "items": [{"k": 1, "t": "one"}, {"k": 2}],
}


def table(**more: Any) -> TablePlan:
    """A table that takes patches."""
    return attrs.evolve(sink_plans.upsert(0, TYPES, KEYS, **more), takes_patches=True, patches=True)


def event(op: str, number: int = 1, **parts: Any) -> tuple[dict[str, str], Any]:
    """A record's key and its event, `after` a document."""
    after = orjson.dumps(parts["after"]).decode() if "after" in parts else None
    told = {"op": op, "source": SOURCE, "before": None, "updateDescription": parts.get("told"), "ts_ms": 1}
    return {"id": str(number)}, {**told, "after": after}


def create(**members: Any) -> tuple[dict[str, str], Any]:
    return event("c", after={**DOCUMENT, **members})


def patch(*removed: str, cut: Sequence[tuple[str, int]] = (), **updated: Any) -> tuple[dict[str, str], Any]:
    """An update that tells only what it changed; paths have two underscores for a dot."""
    fields = orjson.dumps({name.replace("__", "."): value for name, value in updated.items()}).decode()
    arrays = [{"field": field, "size": size} for field, size in cut]
    return event("u", told={"updatedFields": fields, "removedFields": list(removed), "truncatedArrays": arrays})


def decoded(events: Sequence[tuple[dict[str, str], Any]], plan: TablePlan) -> list[ChangeBatch]:
    run = sink_plans.run(*(value for _, value in events), keys=[key for key, _ in events])
    outcome = decode(run, sink_plans.plan(plan))
    assert sink_plans.dead(outcome) == {} and not outcome.needs
    return list(outcome.parts)


def rows_of(parts: Sequence[ChangeBatch]) -> list[dict[str, Any]]:
    """The winners' rows once all is folded; nothing is open."""
    folded = fill_in_batch(fold(parts, KEYS), KEYS)
    assert not mark_unavailable(folded).any()
    rows = [row for part in folded.parts for row in part.rows.to_pylist()]
    return [rows[int(at)] for at in folded.winners]


CHANGES = [
    (patch("b", a=5), {"a": 5, "b": None}),
    (patch("s", "n.x"), {"s": None, "n": {"x": None, "y": [1, 2, 3], "z": None}}),
    (patch(n__x=7, n__y__1=9), {"n": {"x": 7, "y": [1, 9, 3], "z": None}}),
    (patch(n__z={"q": 1}), {"n": {"x": 1, "y": [1, 2, 3], "z": {"q": 1}}}),
    (patch(n__z__q=2), {"n": {"x": 1, "y": [1, 2, 3], "z": {"q": 2}}}),
    (patch(n={"x": 8}), {"n": {"x": 8, "y": None, "z": None}}),
    (patch(cut=[("n.y", 1)]), {"n": {"x": 1, "y": [1], "z": None}}),
    (patch(cut=[("n.y", 1)], n__y__2=6), {"n": {"x": 1, "y": [1, None, 6], "z": None}}),
    (patch(items__1__t="two"), {"items": [{"k": 1, "t": "one"}, {"k": 2, "t": "two"}]}),
    (patch(items__2={"k": 3}), {"items": [{"k": 1, "t": "one"}, {"k": 2, "t": None}, {"k": 3, "t": None}]}),
    (patch("items.0.t"), {"items": [{"k": 1, "t": None}, {"k": 2, "t": None}]}),
    (patch(at={"$date": 1_800_000_000_000}), {"at": datetime(2027, 1, 15, 8, tzinfo=UTC)}),
    (patch(a=None, s="x"), {"a": None, "s": "x"}),
    (patch(n=None), {"n": None}),
]


@pytest.mark.parametrize(("change", "differs"), CHANGES)
def test_a_change_is_applied_to_the_row_before(change: Any, differs: dict[str, Any]) -> None:
    """What is set, removed and cut becomes other, whatever it is nested in, and nothing else does."""
    (before,) = rows_of(decoded([create()], table()))
    (after,) = rows_of(decoded([create(), change], table()))
    assert after == {**before, **differs}


def test_changes_are_applied_in_turn_wherever_a_batch_is_folded() -> None:
    """Patches of one key come to the row before them, and to one another, in any grouping, over a shuffle too."""
    events = [create(), *(change for change, _ in CHANGES), create(a=0), patch("b", n__x=3), patch(n__y=[4], s="end")]
    whole = rows_of(decoded(events, table()))
    assert (whole[0]["s"], whole[0]["n"], whole[0]["b"]) == ("end", {"x": 3, "y": [4], "z": None}, None)
    parts = decoded(events, table())
    rows = ChangeBatch.concat(parts)
    for cuts in ((1, 5), (3, 9, 14), (2, 15, 16), tuple(range(1, len(events)))):
        kept = []
        for first, last in pairwise((0, *cuts, len(events))):
            folded = fill_in_batch(fold([rows.take(np.arange(first, last))], KEYS), KEYS)
            some = select_rows_to_keep(folded, KEYS, find_needed_rows(folded, KEYS))
            kept += [unpack(pack(part), part.rows.schema) for part in some]
        assert rows_of(kept) == whole


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("mode", ["columns", "text"])
def test_each_change_of_a_document_is_read_a_few_times_whatever_their_number(
    mode: DocumentMode, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    """A document that changes 400 times in a batch costs about eight times what one does that changes 50 times."""
    read = list[int]()

    def load(text: str) -> Any:
        read.append(len(text))
        return orjson.loads(text)

    events_as = EventSettings("auto", "auto", (), "__", documents_as=mode)
    types = TYPES if mode == "columns" else {"_id": pa.string(), "document": pa.string(), "__deleted": pa.string()}
    plan = attrs.evolve(sink_plans.upsert(0, types, KEYS), takes_patches=mode == "columns", patches=True)
    costs = []
    for count in (50, 400):
        events = [patch(a=number % 10) for number in range(count)]
        events = [create(), *events] if known else events
        run = sink_plans.run(*(with_schema(value) for _, value in events), keys=[key for key, _ in events])
        parts = decode(run, sink_plans.plan(plan, events=events_as)).parts
        read.clear()
        with monkeypatch.context() as during:
            during.setattr(document_patches, "orjson", SimpleNamespace(loads=load, dumps=orjson.dumps))
            folded = fill_in_batch(fold(parts, KEYS), KEYS)
        costs.append(sum(read))
        (row,) = ChangeBatch.concat(folded.parts).take(folded.winners).rows.to_pylist()
        assert row["a"] == 9 if mode == "columns" else orjson.loads(row["document"]).get("a", 9) == 9
    assert costs[1] < 12 * costs[0]


def test_what_no_change_of_the_batch_tells_waits_for_the_table() -> None:
    """The patches of a key join to one, whose row has what they set; applied to the stored row it is whole."""
    (part,) = decoded([patch("b", a=5, n__x=7), patch(a=6, n__y__0=0)], table())
    folded = fill_in_batch(fold([part], KEYS), KEYS)
    assert mark_unavailable(folded).all()
    (at,) = folded.winners
    (open_part,) = folded.parts
    assert open_part.patches is not None
    (stored,) = decoded([create()], table())
    row = open_part.rows.take(pa.array([at]))
    (made,) = patch_rows(row, stored.rows, [open_part.patches[int(at)].as_py()], frozenset()).to_pylist()
    (whole,) = rows_of(decoded([create(), patch("b", a=5, n__x=7), patch(a=6, n__y__0=0)], table()))
    assert made == whole


def test_a_deleted_document_is_gone_and_one_made_anew_is_new() -> None:
    """A create begins anew: nothing of the document before it is in the row."""
    rows = rows_of(
        decoded([create(), patch(a=5), event("d"), event("c", after={"_id": 1, "s": "x"}), patch(b=2)], table())
    )
    assert [(row["a"], row["b"], row["s"]) for row in rows] == [(None, 2, "x")]


def test_new_members_ask_for_columns() -> None:
    """A member that is set for the first time is a column of its type, a field of a struct or of a list's items."""
    run = sink_plans.run(patch(fresh={"$date": 5}, n__w=1.5, items__0__v=True)[1], keys=[{"id": "1"}])
    (need,) = decode(run, sink_plans.plan(table())).needs
    assert need.row.field("fresh").type == pa.timestamp("us", "UTC")
    assert need.row.field("n").type.field("w").type == pa.float64()
    assert need.row.field("items").type.value_type.field("v").type == pa.bool_()
    assert not any(name.startswith("__debezium") for name in need.row.names)


def test_only_tables_with_a_row_per_key_take_changes() -> None:
    """Elsewhere the event is a dead letter that says so, and what does not fit its column is one everywhere."""
    run = sink_plans.run(patch(a=5)[1], patch(a="text")[1], keys=[{"id": "1"}] * 2)
    plain = decode(run, sink_plans.plan(sink_plans.upsert(0, TYPES, KEYS)))
    assert all("capture.mode=change_streams_update_full" in reason for reason in sink_plans.dead(plain).values())
    assert len(plain.faults) == 2
    outcome = decode(run, sink_plans.plan(table()))
    assert list(sink_plans.dead(outcome)) == [1]


def test_a_row_need_not_have_what_the_table_requires() -> None:
    """The stored row has it."""
    required = sink_plans.upsert(0, TYPES, KEYS)
    (part,) = decoded([patch(a=5)], attrs.evolve(required, takes_patches=True))
    assert part.patches is not None and part.patches.null_count == 0
    assert part.take(np.array([0])).patches == part.patches


def test_events_with_schema_are_the_same() -> None:
    """As JsonConverter writes them with their schema block."""
    key, value = patch("b", a=5)
    run = sink_plans.run(with_schema(create()[1]), with_schema(value), keys=[key] * 2)
    outcome = decode(run, sink_plans.plan(table()))
    assert sink_plans.dead(outcome) == {}
    (row,) = rows_of(list(outcome.parts))
    assert (row["a"], row["b"], row["s"]) == (5, None, "text")


def test_members_may_differ_from_columns_in_case() -> None:
    """With `iceberg.tables.schema-case-insensitive` a patch is about the column of its member's name in any case."""
    run = sink_plans.run(create()[1], patch("B", "S", A=5)[1], keys=[{"id": "1"}] * 2)
    outcome = decode(run, sink_plans.plan(table(), case_insensitive=True))
    assert sink_plans.dead(outcome) == {} and not outcome.needs
    (row,) = rows_of(list(outcome.parts))
    assert (row["a"], row["b"], row["s"]) == (5, None, None)


def test_variants_are_changed_as_json() -> None:
    """A variant's text is read, changed and written again; a text in it stays one."""
    schema = pa.schema([("_id", pa.string()), ("v", pa.string()), ("w", pa.string())])
    base = pa.RecordBatch.from_pylist([{"_id": "1", "v": '{"a":[1,{"b":2}]}', "w": "plain"}], schema)
    came = pa.RecordBatch.from_pylist([{"_id": "1"}], schema)
    told = format_patch({"v.a.1.b": 3, "v.c": None}, ["w"], ())
    (row,) = patch_rows(came, base, [told], frozenset({"v", "w"})).to_pylist()
    assert orjson.loads(row["v"]) == {"a": [1, {"b": 3}], "c": None} and row["w"] is None


def test_partial_documents_have_the_shape_of_whole_ones() -> None:
    """Numbers in paths are places of lists, unless a member is known to be an object."""
    told = format_patch({"a.b.1": 5, "l.0.x": 1, "m.7": "k", "a.c": 1}, ["gone"], [{"field": "cut.x", "size": 1}])
    expected = pa.struct([("m", pa.struct([("7", pa.string())])), ("l", pa.null())])
    document = orjson.loads(format_partial_document(told, expected))
    assert document.pop("__debezium_patch") == told
    assert document == {"a": {"b": [5], "c": 1}, "l": [{"x": 1}], "m": {"7": "k"}}
    assert find_members(told) == {"a", "l", "m", "gone", "cut"}
    whole: dict[str, Any] = {"gone": 1, "m": {"7": "j"}}
    change_document(whole, told)
    assert whole["m"] == {"7": "k"} and "gone" not in whole
