"""A table's schemas and `message.key.columns` -> what identifies its rows, and what is warned of where nothing does."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from connector.errors import ConfigError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.read.file_changes import AffectedFile, FileChanges, RestoredFile
from connector.source.changes import deleted_rows, snapshot_diff
from connector.source.changes.row_key import KeyKind, RowIdentity, RowKey, choose_row_key
from connector.source.snapshots.table_warnings import find_warnings

pytestmark = pytest.mark.unit


def field(name: str, kind: Any, *, required: bool = False) -> dict[str, Any]:
    return {"id": 1, "name": name, "type": kind, "required": required}


def schema(*fields: dict[str, Any], identifiers: tuple[int, ...] = ()) -> SnapshotSchema:
    numbered = [{**f, "id": i} for i, f in enumerate(fields, 1)]
    document = {"type": "struct", "schema-id": 0, "identifier-field-ids": identifiers, "fields": numbered}
    return SnapshotSchema(json.dumps(document))


def test_key_of_a_table() -> None:
    """Configured columns win over identifier columns, these over the row id, which only v3 tables have."""
    keyed = schema(field("a", "long"), field("b", "string", required=True), identifiers=(2,))
    bare = schema(field("a", "long"))
    assert choose_row_key(keyed, keyed, ("a",), "t", has_row_ids=False) == RowKey(
        KeyKind.CONFIGURED, ("a",), RowIdentity.IDENTIFIERS, ("b",)
    )
    assert choose_row_key(keyed, keyed, (), "t", has_row_ids=True) == RowKey(
        KeyKind.IDENTIFIERS, ("b",), RowIdentity.ROW_ID
    )
    assert choose_row_key(bare, bare, (), "t", has_row_ids=True) == RowKey(KeyKind.ROW_ID)
    assert choose_row_key(bare, bare, (), "t", has_row_ids=False) == RowKey()


def test_configured_key_that_is_not_there() -> None:
    """A configured column that the table lacks is an error with both names."""
    found = schema(field("a", "long"), field("b", "string"))
    with pytest.raises(ConfigError, match=r"message\.key\.columns names x, which table db\.t does not have.*a, b"):
        choose_row_key(found, found, ("x",), "db.t", has_row_ids=False)


def test_nested_identifiers_have_dotted_names() -> None:
    """An identifier field inside a struct is named with its path."""
    struct = {"type": "struct", "fields": [{"id": 7, "name": "n", "required": True, "type": "long"}]}
    assert schema(field("s", struct), identifiers=(7,)).identifiers == ("s.n",)


def test_identifier_columns_of_now_key_older_snapshots_too() -> None:
    """Identifier columns set after the rows were written count for them, by field id; what is gone falls back."""
    old = schema(field("ident", "long"), field("v", "int"))
    renamed = schema(field("id", "long", required=True), field("v", "int"), identifiers=(1,))
    assert choose_row_key(old, renamed, (), "t", has_row_ids=False) == RowKey(KeyKind.IDENTIFIERS, ("ident",))
    assert choose_row_key(old, renamed, ("v",), "t", has_row_ids=False) == RowKey(
        KeyKind.CONFIGURED, ("v",), RowIdentity.IDENTIFIERS, ("ident",)
    )
    later = schema(field("id", "long"), field("v", "int"), field("n", "int", required=True), identifiers=(3,))
    assert choose_row_key(old, later, (), "t", has_row_ids=False) == RowKey()
    assert choose_row_key(old, old, (), "t", has_row_ids=True) == RowKey(KeyKind.ROW_ID)


def _key(at: SnapshotSchema, now: SnapshotSchema, *configured: str) -> tuple[str, ...]:
    return choose_row_key(at, now, configured, "db.t", has_row_ids=False).columns


def test_a_configured_column_is_followed_through_its_renames() -> None:
    """By its name now, whatever it was called at the snapshot, or by its name there, as long as that is read."""
    old, new = (schema(field(name, "long"), field("v", "int")) for name in ("code", "number"))
    assert [_key(at, new, "number") for at in (old, new)] == [("code",), ("number",)]
    assert [_key(old, now, "code") for now in (old, new)] == [("code",), ("code",)]
    with pytest.raises(ConfigError, match=r"names code, which table db\.t does not have .* there are number, v; now"):
        _key(new, new, "code")


def test_a_configured_name_that_went_over_to_another_column() -> None:
    """The column that has the name now is meant, where it is there; before it was, the one that had the name."""
    old = schema(field("a", "long"), field("b", "long"))
    swapped = schema(field("b", "long"), field("a", "long"))
    assert [_key(at, swapped, "a") for at in (old, swapped)] == [("b",), ("a",)]
    again = schema(field("b", "long"), field("c", "long"), field("a", "long"))
    assert [_key(at, again, "a") for at in (old, again)] == [("a",), ("a",)]


def test_configured_names_of_one_column() -> None:
    """Its names before and after a rename are no two columns of a key."""
    old, new = schema(field("a", "long"), field("b", "long")), schema(field("a2", "long"), field("b", "long"))
    assert _key(old, new, "b", "a2") == ("b", "a")
    for names in (("a2", "a"), ("a", "a2")):
        with pytest.raises(ConfigError, match=r"names a, which"):
            _key(old, new, *names)


def test_a_configured_column_that_a_snapshot_has_not_yet() -> None:
    """A column that was added later is no key of the rows before: the error names both schemas' columns."""
    old, new = schema(field("v", "int")), schema(field("v", "int"), field("code", "long"))
    with pytest.raises(ConfigError, match=r"names code, .* there are v; now v, code"):
        _key(old, new, "code")


def _struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def _numbered(number: int, name: str, kind: Any = "long") -> dict[str, Any]:
    return {"id": number, "name": name, "required": True, "type": kind}


def test_configured_fields_of_structs() -> None:
    """A configured name with dots is a field inside structs, odd names and renames of any of its parts included."""
    inner = _struct(_numbered(20, "x.y"), _numbered(21, "q`t", _struct(_numbered(22, "z"))))
    renamed = _struct(_numbered(20, "x"), _numbered(21, "q`t", _struct(_numbered(22, "zz"))))
    old, new = schema(field("v", "int"), field("a.s", inner)), schema(field("v", "int"), field("b", renamed))
    assert _key(old, old, "a.s.x.y", "a.s.q`t.z", "v") == ("a.s.x.y", "a.s.q`t.z", "v")
    assert _key(old, new, "b.x", "b.q`t.zz") == ("a.s.x.y", "a.s.q`t.z")
    assert _key(old, new, "a.s.x.y") == ("a.s.x.y",)
    with pytest.raises(ConfigError, match=r"names a\.s\.x, .* are v, a\.s, a\.s\.x\.y, a\.s\.q`t, a\.s\.q`t\.z; now"):
        _key(old, old, "a.s.x")
    with pytest.raises(ConfigError, match=r"names a\.s\.x\.y, which"):
        _key(old, new, "b.x", "a.s.x.y")


_MAP = {"type": "map", "key-id": 30, "key": "string", "value-id": 31, "value": "int", "value-required": False}


@pytest.mark.parametrize(
    "kind",
    [
        _MAP,
        "variant",
        {"type": "list", "element-id": 32, "element": _MAP, "element-required": False},
        {"type": "struct", "fields": [{"id": 33, "name": "m", "required": False, "type": _MAP}]},
    ],
    ids=["map", "variant", "list of maps", "struct of a map"],
)
def test_configured_columns_by_which_rows_have_no_order(kind: Any) -> None:
    """Rows cannot be put together by maps and variants: such a key is refused before anything is published."""
    found = schema(field("id", "long"), field("m", kind))
    with pytest.raises(ConfigError, match=r"message\.key\.columns names m of table db\.t, with a map or a variant"):
        _key(found, found, "id", "m")


def test_configured_lists_and_structs() -> None:
    """Lists and structs of what has an order are keys."""
    items = {"type": "list", "element-id": 32, "element": "int", "element-required": False}
    found = schema(field("l", items), field("s", _struct(_numbered(33, "l", items))))
    assert _key(found, found, "l", "s") == ("l", "s")


def test_items_of_lists_are_no_key() -> None:
    """What a list or a map holds is no field of its row, whatever its name."""
    items = {"type": "list", "element-id": 20, "element": "long", "element-required": True}
    listed = schema(field("l", items))
    with pytest.raises(ConfigError, match=r"names l\.element, which"):
        _key(listed, listed, "l.element")


@pytest.mark.parametrize(
    ("kind", "columns", "identifiers", "version", "same"),
    [
        (KeyKind.IDENTIFIERS, ("a",), ("a",), 2, RowIdentity.NOTHING),
        (KeyKind.IDENTIFIERS, ("a",), ("a",), 3, RowIdentity.ROW_ID),
        (KeyKind.CONFIGURED, ("b",), ("a",), 2, RowIdentity.IDENTIFIERS),
        (KeyKind.CONFIGURED, ("b",), ("a",), 3, RowIdentity.IDENTIFIERS),
        (KeyKind.CONFIGURED, ("b", "a"), ("a", "b"), 2, RowIdentity.NOTHING),
        (KeyKind.CONFIGURED, ("b", "a"), ("a", "b"), 3, RowIdentity.ROW_ID),
        (KeyKind.CONFIGURED, ("b",), (), 2, RowIdentity.NOTHING),
        (KeyKind.CONFIGURED, ("b",), (), 3, RowIdentity.ROW_ID),
        (KeyKind.ROW_ID, (), (), 3, RowIdentity.NOTHING),
        (KeyKind.NONE, (), (), 2, RowIdentity.NOTHING),
    ],
)
def test_a_row_is_known_under_another_key(
    kind: KeyKind, columns: tuple[str, ...], identifiers: tuple[str, ...], version: int, same: RowIdentity
) -> None:
    """By the identifier columns where others are the key, else by the row id of a v3 table, else not at all."""
    fields = (field("a", "long", required=True), field("b", "long", required=True))
    both = schema(*fields, identifiers=tuple("ab".index(name) + 1 for name in identifiers))
    configured = columns if kind == KeyKind.CONFIGURED else ()
    assert choose_row_key(both, both, configured, "t", has_row_ids=version == 3) == RowKey(
        kind, columns, same, identifiers if same == RowIdentity.IDENTIFIERS else ()
    )


@pytest.mark.parametrize("place", ["removed", "added", "touched", "relieved"])
@pytest.mark.parametrize("data_format", ["orc", "avro"])
def test_files_without_readable_row_ids_stop_no_table_with_keys(
    monkeypatch: pytest.MonkeyPatch, place: str, data_format: str
) -> None:
    """A table that left ORC has old files of it: of what a snapshot does to these no change of a key is known."""
    old: Any = SimpleNamespace(row_ids_readable=data_format != "orc")
    new: Any = SimpleNamespace(row_ids_readable=True)
    among: dict[str, Any] = {"touched": (AffectedFile(new, old),), "relieved": (RestoredFile(old, new),)}
    sides = {"removed": (), "added": (new,), "touched": (), "relieved": (), place: among.get(place, (old,))}
    files = FileChanges(**sides, sequence_number=1, first_row_id=0)
    read = list[bool]()
    monkeypatch.setattr(snapshot_diff, "check_format_version", lambda _: None)
    monkeypatch.setattr(snapshot_diff, "read_file_changes", lambda *_: files)
    monkeypatch.setattr(deleted_rows, "find_restored_rows", lambda *_, lineage: read.append(lineage))
    monkeypatch.setattr(snapshot_diff.SnapshotDiff, "frame", lambda self: self.keys)
    for kind, same in ((KeyKind.IDENTIFIERS, RowIdentity.ROW_ID), (KeyKind.ROW_ID, RowIdentity.NOTHING)):
        key: Any = snapshot_diff.read_changes(Mock(), 1, RowKey(kind, ("id",), same))
        readable = data_format != "orc"
        assert key == RowKey(kind, ("id",), same if readable else RowIdentity.NOTHING)
        assert read.pop() is (readable or kind == KeyKind.ROW_ID)


def test_costly_tables_and_missing_keys_are_warned_of() -> None:
    """No key, no published columns, and properties that make deletes dear to read have a warning with the way out."""
    assert find_warnings(RowKey(KeyKind.IDENTIFIERS, ("id",)), 2, {}, 1) == []
    assert "message.key.columns" in find_warnings(RowKey(), 2, {}, 1)[0]
    assert "_row_id" in find_warnings(RowKey(KeyKind.ROW_ID), 3, {}, 1)[0]
    wide = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"}
    assert "write.delete.granularity" in find_warnings(RowKey(KeyKind.IDENTIFIERS, ("id",)), 2, wide, 1)[0]
    assert find_warnings(RowKey(KeyKind.IDENTIFIERS, ("id",)), 3, wide, 1) == []
    bare = {"write.metadata.metrics.default": "none"}
    assert "bounds of id" in find_warnings(RowKey(KeyKind.CONFIGURED, ("id",)), 2, bare, 1)[0]
    assert (
        find_warnings(RowKey(KeyKind.CONFIGURED, ("id",)), 2, {**bare, "write.metadata.metrics.column.id": "full"}, 1)
        == []
    )
    assert "column.include.list matches none" in find_warnings(RowKey(KeyKind.IDENTIFIERS, ("id",)), 2, {}, 0)[0]
