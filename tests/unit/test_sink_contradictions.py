"""Tables that are there and are not as the settings say tables are made."""

from __future__ import annotations

import pyarrow as pa
import pytest
from attrs import evolve

from connector.settings.iceberg.new_tables.partition_spec import parse_partition_term
from connector.sink.destinations.iceberg.tables.checks import check_partitions, check_types
from tests.unit.sink_plans import layout

THERE = layout({"id": pa.int64(), "at": pa.timestamp("us"), "price": pa.decimal128(12, 2)})
BY_DAY = '{"spec-id":1,"fields":[{"name":"d","transform":"day","source-id":2,"field-id":1000}]}'


@pytest.mark.parametrize(
    ("declared", "faults"),
    [
        ({"id": pa.int64()}, 0),
        ({"id": pa.int32(), "price": pa.decimal128(9, 2), "new": pa.string()}, 0),
        ({"id": pa.string()}, 1),
        ({"id": pa.float64(), "price": pa.decimal128(9, 4)}, 2),
    ],
)
def test_a_declared_type_that_the_table_does_not_have(declared: dict[str, pa.DataType], faults: int) -> None:
    """A column that has grown since is as declared; one of another type contradicts, and is named."""
    assert len(check_types(pa.schema(list(declared.items())), THERE)) == faults


@pytest.mark.parametrize(
    ("terms", "told"),
    [(["day(at)"], None), (["day(at)", "missing"], None), (["hour(at)"], "day(at)"), (["bucket(id, 4)"], "day(at)")],
)
def test_a_partition_spec_that_is_another(terms: list[str], told: str | None) -> None:
    """A spec other than partition-by is told as it is; terms of columns that the table has not do not count."""
    assert check_partitions([parse_partition_term(term) for term in terms], evolve(THERE, spec_json=BY_DAY)) == told


def test_no_partitions_where_some_are_configured() -> None:
    """A table without partitions contradicts too."""
    assert check_partitions([parse_partition_term("id")], THERE) == "nothing"


def test_identifier_fields_within_structs_are_found() -> None:
    """An identifier field below the top level is named in full, and is a key beside those of the top level."""
    schema = (
        '{"type":"struct","schema-id":0,"identifier-field-ids":[1,3],"fields":['
        '{"id":1,"name":"id","required":true,"type":"long"},{"id":2,"name":"s","required":true,"type":'
        '{"type":"struct","fields":[{"id":3,"name":"k","required":true,"type":"long"}]}}]}'
    )
    found = evolve(THERE, schema_json=schema)
    assert (found.keys, found.key_paths) == (("id", "s.k"), (("id",), ("s", "k")))
