"""A table's schemas now and at a snapshot + `message.key.columns` -> the key of that snapshot's rows (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from connector.iceberg.schemas import SnapshotSchema
from connector.source.keys import KeyKind, Keys, keys_of


def identity(
    schema: SnapshotSchema, current: SnapshotSchema, format_version: int, configured: Sequence[str], table: str
) -> Keys:
    """Choose the key: configured columns, else the identifier columns of now, else those of the snapshot, and so on.

    Identifier columns are usually set on a table that holds rows already: that makes no snapshot, and the rows' schema
    does not know of them. The columns of now, found by field id, give one topic one kind of key.

    Raises:
        ConfigError: a configured column is not in the schema.
    """
    if not configured and current.identifiers:
        ids = [current.iceberg.find_field(name).field_id for name in current.identifiers]
        names = [schema.iceberg.find_column_name(field_id) for field_id in ids]
        if all(names):
            return Keys(KeyKind.IDENTIFIERS, tuple(name for name in names if name))
    return keys_of(schema, format_version, configured, table)
