"""recordings -> reference -> PostgreSQL's recorded end: the reference is right before it judges the sink."""

from __future__ import annotations

import pytest

from tests.model import recordings, reference, truth, values

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("table", recordings.TABLES)
@pytest.mark.parametrize("variant", recordings.ALL_VARIANTS)
def test_reference_ends_in_the_recorded_state(variant: str, table: str) -> None:
    """Each recorded variant folded by the reference equals PostgreSQL's rows at the end."""
    folded = reference.upsert(recordings.load(variant, table), keep_deletes=False)
    assert truth.faults(variant, table, folded.rows.values()) == []


@pytest.mark.parametrize("variant", recordings.ALL_VARIANTS)
def test_what_is_called_unknowable_differs(variant: str) -> None:
    """Each exception that the truth names is a real one: without it its table would differ."""
    for (table, column), ids in truth.UNKNOWABLE.items():
        if table == "exotic":
            continue  # its types are beyond the reference
        found = reference.upsert(recordings.load(variant, table), keep_deletes=False).rows.values()
        rows, state = {r["id"]: r for r in found}, {r["id"]: r for r in recordings.state(table)}
        for key in ids:
            assert not values.same(state[key][column], rows[key].get(column), typed=False), (column, key)


@pytest.mark.parametrize("table", recordings.TABLES)
def test_soft_deletes_are_the_hard_table_and_marked_rows(table: str) -> None:
    """Keeping deletes adds rows marked as deleted and changes no other row."""
    records = recordings.load("json_schema_envelope", table)
    hard = reference.upsert(records, keep_deletes=False).rows
    soft = reference.upsert(records, keep_deletes=True).rows
    assert values.differences(hard.values(), [soft[k] for k in hard]) == []
    assert {r["__deleted"] for k, r in soft.items() if k not in hard} <= {"true"}


def test_the_order_of_reading_does_not_matter() -> None:
    """The reference folds records by their own order, not by the order they are handed over in."""
    records = recordings.load("json_unwrap_rewrite_dups", "customers")
    assert reference.upsert(records[::-1], keep_deletes=True) == reference.upsert(records, keep_deletes=True)


def test_a_changed_value_is_a_fault() -> None:
    """The judge sees one wrong value, one missing row and one row too many."""
    records = recordings.load("json_schema_envelope", "full_pk")
    rows = [dict(r) for r in reference.upsert(records, keep_deletes=False).rows.values()]
    wrong = [{**rows[0], "v": "else"}, *rows[1:]]
    assert len(truth.faults("json_schema_envelope", "full_pk", wrong)) == 1
    assert len(truth.faults("json_schema_envelope", "full_pk", rows[1:])) == 1
    assert len(truth.faults("json_schema_envelope", "full_pk", [*rows, {"id": 9, "v": None, "n": None}])) == 1
    assert len(truth.faults("json_schema_envelope", "full_pk", [*rows, rows[0]])) == 1
