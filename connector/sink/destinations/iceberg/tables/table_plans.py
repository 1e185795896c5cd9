"""A table as the driver knows it, and a batch's start -> the table's plan, which tasks get (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from connector.iceberg.catalog.table_layout import TableLayout
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import TableSettings
from connector.sink.convert.columns.column_renames import parse_renames
from connector.sink.convert.columns.found_columns import has_dates
from connector.sink.destinations.iceberg.tables.creation import TOMBSTONES_PROPERTY
from connector.sink.destinations.iceberg.tables.options import TableOptions
from connector.sink.destinations.iceberg.tables.target_table import TargetTable
from connector.sink.destinations.iceberg.write_modes.registry import WRITE_MODES
from connector.sink.model.plan import TablePlan


def build_table_plan(
    target: TargetTable, options: TableOptions, index: int, start: Mapping[TopicPartition, int], *, patched: bool
) -> TablePlan:
    """Return what tasks of a batch that starts at `start` need to know of a table; patched: its events omit values."""
    settings, history, stored = options.settings, options.keeps_history, target.stored.position
    one_row_per_key = target.upsert and not history
    return TablePlan(
        index=index,
        layout=target.layout,
        upsert=target.upsert,
        keep_deletes=settings.keep_deletes and not history,
        tombstones="skip" if history else _choose_tombstones(target, settings),
        base=target.base,
        known_keys=target.known_keys,
        committed={at: offset for at, offset in stored.offsets.items() if offset > start.get(at, offset)},
        patches=patched and one_row_per_key,
        keys_from=options.key_source,
        key_configured=bool(options.key_columns),
        dated=one_row_per_key and is_dated(target.layout, settings),
        watermarks=stored.watermarks,
        partitions=stored.partitions,
        after_delete=stored.after_delete,
        truncates=stored.truncates,
        write_mode=target.write_mode,
        needs_row_lookup=WRITE_MODES[target.write_mode].looks_up_rows,
        row_lookup=settings.row_lookup,
        history=target.upsert and history,
        renames=parse_renames(target.layout.properties),
        takes_patches=one_row_per_key,
    )


def is_dated(layout: TableLayout, settings: TableSettings) -> bool:
    """Tell whether the table's rows have a column that says how old they are."""
    return has_dates(layout, settings.dedup_column)


def _choose_tombstones(target: TargetTable, settings: TableSettings) -> Literal["delete", "skip"]:
    if not target.upsert:
        return "skip"
    declared = target.layout.properties.get(TOMBSTONES_PROPERTY) == "delete"
    return "delete" if declared or not settings.keep_deletes else "skip"
