"""A table's schemas, now and at a snapshot, + `message.key.columns` -> the key of that snapshot's rows (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import attrs

from connector.errors import ConfigError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.types.schemas.schema_json import iter_struct_fields


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

    `same` is how a row is known under another key; `identifiers` are the columns for `RowIdentity.IDENTIFIERS`.
    """

    kind: KeyKind = KeyKind.NONE
    columns: tuple[str, ...] = ()
    same: RowIdentity = RowIdentity.NOTHING
    identifiers: tuple[str, ...] = ()


def choose_row_key(
    schema: SnapshotSchema, current: SnapshotSchema, configured: Sequence[str], table: str, *, has_row_ids: bool
) -> RowKey:
    """Choose the key of a snapshot's rows, and how a row is known whose key changed.

    The key is the configured columns, else the table's current identifier columns, else those in the snapshot's schema,
    else the row id where rows have one, else none. Identifier columns are usually set on a table that has rows already:
    that makes no snapshot, and the schema of its snapshots does not have them. The current ones, found by field id,
    give one topic one kind of key. A configured name is that of a column now, whatever it was called at the snapshot;
    a name that no column of the snapshot has now is looked for among its names then.

    A row whose key changed is known by its identifier columns, where configured columns that differ from them are the
    key; else by the row id of a v3 table, which an update keeps. Where neither is there, a changed key is a delete and
    a create of two rows.

    Args:
        schema: of the snapshot.
        current: the table's schema now.
        configured: `message.key.columns` of the table.
        table: its name, for messages.
        has_row_ids: whether the table's rows have ids.

    Raises:
        ConfigError: a configured column is not in the snapshot's schema, two names mean one column, or one has a map or
            a variant in it.
    """
    identifiers = _current_identifiers(schema, current) or schema.identifiers
    if configured:
        key = RowKey(KeyKind.CONFIGURED, _find_configured(schema, current, configured, table))
    elif identifiers:
        key = RowKey(KeyKind.IDENTIFIERS, identifiers)
    else:
        return RowKey(KeyKind.ROW_ID) if has_row_ids else RowKey()
    if configured and identifiers and set(identifiers) != set(key.columns):
        return attrs.evolve(key, same=RowIdentity.IDENTIFIERS, identifiers=identifiers)
    return attrs.evolve(key, same=RowIdentity.ROW_ID) if has_row_ids else key


def _find_configured(
    schema: SnapshotSchema, current: SnapshotSchema, configured: Sequence[str], table: str
) -> tuple[str, ...]:
    """Return the configured columns and fields of structs under their names at the snapshot, by field id."""
    types = {name: field["type"] for name, field in iter_struct_fields(schema.document)}
    then = {field["id"]: name for name, field in iter_struct_fields(schema.document)}
    now = {name: field["id"] for name, field in iter_struct_fields(current.document)}
    fields = {name: then.get(now[name]) if name in now else None for name in configured}
    for name, column in fields.items():
        if column is None and name in then.values() and name not in fields.values():
            fields[name] = name
    missing = [name for name, column in fields.items() if column is None]
    if missing:
        raise ConfigError(
            f"message.key.columns names {', '.join(missing)}, which table {table} does not have in the snapshot that "
            f"is read; its columns there are {', '.join(then.values())}; now {', '.join(now)}: name columns "
            "that it has at both times, each once, as they are called now"
        )
    columns = tuple(column for column in fields.values() if column is not None)
    unfit = [name for name in columns if not _is_comparable(types[name])]
    if unfit:
        raise ConfigError(
            f"message.key.columns names {', '.join(unfit)} of table {table}, with a map or a variant in it, by which "
            "rows cannot be put together; name columns of other types"
        )
    return columns


def _is_comparable(kind: Any) -> bool:
    """Tell whether Spark can sort rows by a type, as it does to find the rows of one key: by no map and no variant."""
    if isinstance(kind, str):
        return kind != "variant"
    if kind["type"] == "struct":
        return all(_is_comparable(field["type"]) for field in kind["fields"])
    return kind["type"] == "list" and _is_comparable(kind["element"])


def _current_identifiers(schema: SnapshotSchema, current: SnapshotSchema) -> tuple[str, ...]:
    """Return the current identifier columns under their names at the snapshot; none when one was not there."""
    ids = [current.iceberg.find_field(name).field_id for name in current.identifiers]
    names = [schema.iceberg.find_column_name(field_id) for field_id in ids]
    return tuple(name for name in names if name) if all(names) else ()
