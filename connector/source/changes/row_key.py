"""A snapshot's schema + `message.key.columns` -> what identifies a row of a table (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import attrs

from connector.errors import ConfigError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema

LINEAGE_VERSION = 3
"""The format version from which on rows have ids."""


class KeyKind(StrEnum):
    """Where the identity of a row comes from."""

    IDENTIFIERS = "identifier columns"
    CONFIGURED = "configured columns"
    ROW_ID = "row id"
    NONE = "none"


class RowIdentity(StrEnum):
    """What tells that a delete of one key and a create of another are one row, whose key changed."""

    NOTHING = "nothing"
    IDENTIFIERS = "identifier columns"
    ROW_ID = "row id"


@attrs.frozen
class RowKey:
    """What identifies a row: `columns` are names in the snapshot's schema, nested ones with dots between.

    `same` is how a row is known under another key; `identifiers` are the columns for `Same.IDENTIFIERS`.
    """

    kind: KeyKind = KeyKind.NONE
    columns: tuple[str, ...] = ()
    same: RowIdentity = RowIdentity.NOTHING
    identifiers: tuple[str, ...] = ()


def choose_snapshot_key(schema: SnapshotSchema, format_version: int, configured: Sequence[str], table: str) -> RowKey:
    """Choose the key: configured columns, else identifier columns, else the row id of a v3 table, else none.

    Raises:
        ConfigError: a configured column is not in the schema.
    """
    if configured:
        missing = [name for name in configured if name not in schema.names]
        if missing:
            raise ConfigError(
                f"message.key.columns names {', '.join(missing)}, which table {table} does not have; "
                f"its columns are {', '.join(schema.names)}"
            )
        return RowKey(KeyKind.CONFIGURED, tuple(configured))
    if schema.identifiers:
        return RowKey(KeyKind.IDENTIFIERS, schema.identifiers)
    return RowKey(KeyKind.ROW_ID) if format_version >= LINEAGE_VERSION else RowKey()


def with_row_identity(keys: RowKey, identifiers: Sequence[str], format_version: int) -> RowKey:
    """Add how a row is known whose key changed.

    By the identifier columns, where configured columns that differ from them are the key; else by the row id of a v3
    table, which an update keeps. Where neither is there, a changed key is a delete and a create of two rows.
    """
    if keys.kind not in (KeyKind.CONFIGURED, KeyKind.IDENTIFIERS):
        return keys
    if keys.kind == KeyKind.CONFIGURED and identifiers and set(identifiers) != set(keys.columns):
        return attrs.evolve(keys, same=RowIdentity.IDENTIFIERS, identifiers=tuple(identifiers))
    if format_version >= LINEAGE_VERSION:
        return attrs.evolve(keys, same=RowIdentity.ROW_ID)
    return keys
