"""A table's key and properties -> what its owner should know, said once per table and process."""

from __future__ import annotations

import structlog

from connector.iceberg.catalog.table import Table
from connector.iceberg.java import to_dict
from connector.source.changes.row_key import KeyKind, RowKey


def log_warnings(table: Table, keys: RowKey, columns: int) -> None:
    """Log what makes a table's events less useful, or dear to find; `columns` is how many of them are published."""
    log = structlog.get_logger()
    for text in find_warnings(keys, table.format_version, to_dict(table.java.properties()), columns):
        log.warning(text, table=table.name)


def find_warnings(keys: RowKey, format_version: int, properties: dict[str, str], columns: int) -> list[str]:
    """Return the texts of the warnings (pure)."""
    warnings = []
    if not columns:
        warnings.append(
            "no column of the table is published, its events are empty: column.include.list matches none of them, or "
            "column.exclude.list all; expressions are for whole names, <namespace>.<table>.<column>"
        )
    if keys.kind == KeyKind.NONE:
        warnings.append(
            "no identifier columns: events have no key, an update is a delete and a create, and consumers cannot tell "
            "which row is meant; set them (ALTER TABLE ... SET IDENTIFIER FIELDS) or message.key.columns"
        )
    if keys.kind == KeyKind.ROW_ID:
        warnings.append(
            "no identifier columns: rows are keyed by _row_id, which equality deletes and rewrites by older writers do "
            "not keep; set identifier columns or message.key.columns if the rows have a key of their own"
        )
    on_read = any(properties.get(f"write.{what}.mode") == "merge-on-read" for what in ("delete", "update", "merge"))
    if (
        format_version == _POSITION_DELETES_VERSION
        and on_read
        and properties.get("write.delete.granularity") == "partition"
    ):
        warnings.append(
            "write.delete.granularity=partition: every delete makes all files of its partitions be read; "
            "write.delete.granularity=file names the files, format version 3 does so by itself"
        )
    if properties.get("write.metadata.metrics.default") == "none" and keys.columns:
        missing = [c for c in keys.columns if f"write.metadata.metrics.column.{c}" not in properties]
        if missing:
            warnings.append(
                f"write.metadata.metrics.default=none: files have no bounds of {', '.join(missing)}, so that deletes "
                "by key make every file be read; set write.metadata.metrics.column.<name>=truncate(16) for them"
            )
    return warnings


_POSITION_DELETES_VERSION = 2
"""The format version whose merge-on-read deletes are files of positions."""
