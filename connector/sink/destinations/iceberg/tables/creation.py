"""Shapes of events + what is configured -> a new Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import pyarrow as pa
import structlog

from connector.errors import DataFault, FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.retention_properties import CREATED_TABLE_PROPERTIES
from connector.iceberg.catalog.table import Table
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.schemas.full_names import find_ambiguous_columns
from connector.iceberg.types.schemas.schema_evolution import union_shapes
from connector.settings import SinkSettings, TableSettings
from connector.settings.iceberg.new_tables.file_formats import DEFAULT_FORMAT_PROPERTY
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm, parse_partition_term
from connector.settings.iceberg.new_tables.sort_order import SortTerm, parse_sort_term
from connector.sink.convert.columns.field_matching import match_key_shapes, merge_case_variants
from connector.sink.convert.events import icebergevents
from connector.sink.destinations.iceberg.tables import checks as table_checks
from connector.sink.destinations.iceberg.tables.options import TableOptions
from connector.sink.destinations.table_schema import (
    build_declared_schema,
    choose_key,
    find_required_columns,
    find_terms,
    with_keys,
    with_validity,
)
from connector.sink.model.plan import VALID_FROM, SchemaChange
from serde.events.changes import DELETED_COLUMN

T = TypeVar("T", PartitionTerm, SortTerm)


TOMBSTONES_PROPERTY = "icebridge.tombstones"
"""Table property, set when a table is made for events that carry no deletes themselves: then tombstones are deletes."""


class TableCreator:
    """Makes the tables of one sink."""

    def __init__(self, settings: SinkSettings, catalog: Catalog) -> None:
        """Make tables in a catalog."""
        self._settings, self._catalog = settings, catalog
        self._log = structlog.get_logger()

    def create(
        self, name: str, needs: list[SchemaChange], options: TableOptions, more: Mapping[str, str] | None = None
    ) -> Table:
        """Create a table for events of these shapes; `more` are additional properties.

        Raises:
            DataFault: no table may be created, or none can have such events.
            FatalError: no table can be as it is configured.
        """
        settings, new = self._settings.table, self._settings.table.new_tables
        if not settings.auto_create:
            raise DataFault(
                f"table {options.full_name} does not exist, and auto-create-enabled is false; create it, or set "
                "iceberg.tables.auto-create-enabled=true, and replay the record"
            )
        if settings.events_only:
            by, order = icebergevents.PARTITIONS, icebergevents.SORT_ORDER
            return self._catalog.create(name, icebergevents.SCHEMA, by, self.properties(), sort_by=order)
        columns, keys = _choose_columns(needs, options)
        fault = options.write_mode.find_key_fault(columns, keys)
        if fault is not None:
            raise (FatalError if options.key_columns else DataFault)(f"table {options.full_name}: {fault}")
        upsert, properties = options.upserts(has_key=bool(keys)), {**self.properties(), **(more or {})}
        if upsert and options.keeps_history:
            columns, keys = with_validity(columns), (*keys, VALID_FROM)
        elif upsert and settings.keep_deletes and DELETED_COLUMN not in columns.names:
            columns = columns.append(pa.field(DELETED_COLUMN, pa.string()))
            properties[TOMBSTONES_PROPERTY] = "delete"
        data_format = {**properties, **settings.write_properties}[DEFAULT_FORMAT_PROPERTY]
        table_checks.check_new_table(options.full_name, columns, data_format, version=new.format_version, upsert=upsert)
        required = _find_required(needs, settings)
        schema = build_table_schema(columns, keys, required, nanoseconds=new.has_nanoseconds)
        spec, sort_by = self._partitioning(options, needs, columns), self._sorting(options, needs, columns)
        table = self._catalog.create(name, schema, spec, properties, sort_by=sort_by, location=new.location)
        self._log.info("table created", table=table.name, columns=len(columns), identifier_fields=list(keys))
        return table

    def properties(self) -> dict[str, str]:
        """Return the properties of new tables."""
        new, catalog = self._settings.table.new_tables, self._settings.catalog
        # A catalog's own defaults are somebody's decision too.
        kept = {
            key: value
            for key, value in CREATED_TABLE_PROPERTIES.items()
            if f"table-default.{key}" not in catalog.properties
        }
        own = {**kept, "format-version": str(new.format_version), "write.format.default": new.write_format}
        return table_checks.complete_properties({**own, **catalog.table_properties, **new.properties})

    def _partitioning(
        self, options: TableOptions, needs: list[SchemaChange], columns: pa.Schema
    ) -> tuple[PartitionTerm, ...]:
        new = options.settings.new_tables
        own = find_terms(new.partition_by_table, options.names, needs)
        if own is not None:
            return tuple(parse_partition_term(term) for term in own)
        terms = [parse_partition_term(term) for term in new.partition_by]
        return self._with_columns("partition-by", options, terms, columns)

    def _sorting(self, options: TableOptions, needs: list[SchemaChange], columns: pa.Schema) -> tuple[SortTerm, ...]:
        new = options.settings.new_tables
        own = find_terms(new.sort_by_table, options.names, needs)
        if own is not None:
            return tuple(parse_sort_term(term) for term in own)
        return self._with_columns("sort-by", options, [parse_sort_term(term) for term in new.sort_by], columns)

    def _with_columns(self, option: str, options: TableOptions, terms: list[T], columns: pa.Schema) -> tuple[T, ...]:
        """Drop terms of columns that a table lacks: a setting for all tables need not fit each of them."""
        missing = [term.column for term in terms if term.column not in columns.names]
        if missing:
            self._log.warning(f"{option} names columns that the table lacks", table=options.names[0], columns=missing)
        return tuple(term for term in terms if term.column in columns.names)


def _choose_columns(needs: list[SchemaChange], options: TableOptions) -> tuple[pa.Schema, tuple[str, ...]]:
    """Return the columns of a new table, those of its key included, and the key."""
    settings, declared = options.settings, options.settings.new_tables.columns
    columns = build_declared_schema(declared) if declared else union_shapes(need.row for need in needs)
    if settings.case_insensitive and not declared:
        columns = pa.schema(merge_case_variants(columns))
        needs = match_key_shapes(needs, columns.names)
    keys = choose_key(needs, columns, settings, options.names)
    columns = with_keys(columns, needs if options.key_source == "record" else [], keys)
    if not len(columns):
        raise DataFault(
            "its events have no columns that a table could have; create the table, or take the topic out of topics"
        )
    ambiguous = find_ambiguous_columns((), columns)
    if ambiguous:
        raise DataFault(f"fields within columns have the full names of columns {', '.join(sorted(ambiguous))}")
    return columns, keys


def _find_required(needs: list[SchemaChange], settings: TableSettings) -> frozenset[str]:
    required = find_required_columns(needs) if settings.new_tables.preserve_required else frozenset()
    return required | frozenset(column.name for column in settings.new_tables.columns if column.required)
