"""A table's schemas now and at a snapshot + `message.key.columns` -> the key of that snapshot's rows (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.source.changes.row_key import KeyKind, Keys, keys_of, with_same


def identity(
    schema: SnapshotSchema, current: SnapshotSchema, format_version: int, configured: Sequence[str], table: str
) -> Keys:
    """Choose the key: configured columns, else the identifier columns of now, else those of the snapshot, and so on;
    and how a row is known whose key changed.

    Identifier columns are usually set on a table that holds rows already: that makes no snapshot, and the rows' schema
    does not know of them. The columns of now, found by field id, give one topic one kind of key.

    Raises:
        ConfigError: a configured column is not in the schema.
    """
    identifiers = _identifiers(schema, current)
    if identifiers and not configured:
        keys = Keys(KeyKind.IDENTIFIERS, identifiers)
    else:
        keys = keys_of(schema, format_version, configured, table)
    return with_same(keys, identifiers or schema.identifiers, format_version)


def _identifiers(schema: SnapshotSchema, current: SnapshotSchema) -> tuple[str, ...]:
    """The identifier columns of now under their names at the snapshot; none when one was not there."""
    ids = [current.iceberg.find_field(name).field_id for name in current.identifiers]
    names = [schema.iceberg.find_column_name(field_id) for field_id in ids]
    return tuple(name for name in names if name) if all(names) else ()
