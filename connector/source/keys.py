"""A snapshot's schema + `message.key.columns` -> what identifies a row of a table (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import attrs

from connector.errors import ConfigError
from connector.iceberg.schemas import SnapshotSchema


class KeyKind(StrEnum):
    """Where the identity of a row comes from."""

    IDENTIFIERS = "identifier columns"
    CONFIGURED = "configured columns"
    ROW_ID = "row id"
    NONE = "none"


@attrs.frozen
class Keys:
    """What identifies a row: `columns` are names in the snapshot's schema, nested ones with dots between."""

    kind: KeyKind = KeyKind.NONE
    columns: tuple[str, ...] = ()


def keys_of(schema: SnapshotSchema, format_version: int, configured: Sequence[str], table: str) -> Keys:
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
        return Keys(KeyKind.CONFIGURED, tuple(configured))
    if schema.identifiers:
        return Keys(KeyKind.IDENTIFIERS, schema.identifiers)
    return Keys(KeyKind.ROW_ID) if format_version >= 3 else Keys()  # noqa: PLR2004 - the version with row lineage
