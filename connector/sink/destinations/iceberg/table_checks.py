"""A table that is there, and what the settings say of tables that are made -> where the two contradict (pure)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schema_evolution import evolve
from connector.settings.iceberg.partition_spec import PartitionTerm


def check_types(declared: pa.Schema, layout: TableLayout) -> list[str]:
    """Tell of declared columns that the table has with another type, one that is no widening of the declared one."""
    faults = []
    for field in declared:
        place = layout.columns.get_field_index(field.name)
        if place < 0:
            continue
        there = layout.columns.field(place)
        if not evolve(pa.schema([field]), pa.struct([there]), add=True).field(0).type.equals(there.type):
            kind = layout.schema.find_field(field.name).field_type
            faults.append(f"column {field.name} is {kind}, and schema.columns declares another type")
    return faults


def check_partitions(terms: Sequence[PartitionTerm], layout: TableLayout) -> str | None:
    """Tell of a partition spec that is not the configured one; terms of columns that the table has not are left out."""
    wanted = [(term.column, _transform_name(term)) for term in terms if term.column in layout.schema.column_names]
    return None if wanted == partition_fields(layout) else _describe(partition_fields(layout))


def partition_fields(layout: TableLayout) -> list[tuple[str, str]]:
    """Give column and transform of each partition field."""
    fields = [field for field in layout.spec.fields if str(field.transform) != "void"]
    return [(str(layout.schema.find_column_name(f.source_id)), str(f.transform)) for f in fields]


def _transform_name(term: PartitionTerm) -> str:
    return term.transform if term.width is None else f"{term.transform}[{term.width}]"


def _describe(fields: list[tuple[str, str]]) -> str:
    return ", ".join(name if kind == "identity" else f"{kind}({name})" for name, kind in fields) or "nothing"
