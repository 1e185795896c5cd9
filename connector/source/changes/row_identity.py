"""A table's schemas now and at a snapshot + `message.key.columns` -> the key of that snapshot's rows (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.source.changes.row_key import KeyKind, RowKey, choose_snapshot_key, with_row_identity


def choose_row_key(
    schema: SnapshotSchema, current: SnapshotSchema, format_version: int, configured: Sequence[str], table: str
) -> RowKey:
    """Choose the key: configured columns, else the identifier columns of now, else those of the snapshot, and so on;
    and how a row is known whose key changed.

    Identifier columns are usually set on a table that holds rows already: that makes no snapshot, and the rows' schema
    does not know of them. The columns of now, found by field id, give one topic one kind of key.

    Raises:
        ConfigError: a configured column is not in the schema.
    """
    identifiers = _current_identifiers(schema, current)
    if identifiers and not configured:
        keys = RowKey(KeyKind.IDENTIFIERS, identifiers)
    else:
        keys = choose_snapshot_key(schema, format_version, configured, table)
    return with_row_identity(keys, identifiers or schema.identifiers, format_version)


def _current_identifiers(schema: SnapshotSchema, current: SnapshotSchema) -> tuple[str, ...]:
    """The identifier columns of now under their names at the snapshot; none when one was not there."""
    ids = [current.iceberg.find_field(name).field_id for name in current.identifiers]
    names = [schema.iceberg.find_column_name(field_id) for field_id in ids]
    return tuple(name for name in names if name) if all(names) else ()
