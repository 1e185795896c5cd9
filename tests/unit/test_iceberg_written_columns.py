"""What others change of a table while files are written for it -> whether these may be committed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import orjson
import pytest

from connector.errors import OutdatedFiles
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.commit import commit
from connector.iceberg.commit.commit import PendingCommit, commit_files
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit


def _schema(number: int = 0, /, **ids: int) -> str:
    """A schema of columns by their ids; a struct with a field of this id comes with a number."""
    fields: list[dict[str, Any]] = [
        {"id": one, "name": name, "required": False, "type": "long"} for name, one in ids.items()
    ]
    if number:
        inner = [{"id": number, "name": "x", "required": False, "type": "int"}]
        fields.append({"id": 99, "name": "s", "required": False, "type": {"type": "struct", "fields": inner}})
    return orjson.dumps({"type": "struct", "schema-id": 0, "fields": fields}).decode()


_DATA = FileDescription("f", "data", b"{}")
_DELETES = FileDescription("g", "equality-deletes", b"{}")
_PENDING = PendingCommit([_DATA], KafkaOffsets("c"), LastCommit(), None, guarded=False, replaces=True)


def _commit(monkeypatch: pytest.MonkeyPatch, pending: PendingCommit, now: str) -> None:
    """Commit to a table that has this schema by now, up to where Iceberg begins."""

    class Reached(Exception):
        pass

    def begin(*_: object) -> None:
        raise Reached

    for name in ("_start_append", "_start_row_delta"):
        monkeypatch.setattr(commit, name, begin)
    monkeypatch.setattr(commit, "commit_exactly_once", lambda _table, _id, update, _rule, few_manifests: update())
    monkeypatch.setattr(commit, "check_sole_writer", lambda *_: None)
    table: Any = SimpleNamespace(name="d.t", format_version=2, schema_json=now, has_spec=lambda spec: spec < 2)
    with pytest.raises(Reached):
        commit_files(table, pending, "sink")


@pytest.mark.parametrize("replaces", [True, False])
@pytest.mark.parametrize(("before", "now"), [(_schema(id=1, a=2), _schema(id=1, a=3)), (_schema(4), _schema(5))])
def test_a_column_that_was_dropped_and_added_again(
    monkeypatch: pytest.MonkeyPatch, before: str, now: str, replaces: bool
) -> None:
    """Values under the id of a column that others dropped would be lost: the files are written anew."""
    pending = attrs.evolve(_PENDING, schema_json=before, replaces=replaces)
    with pytest.raises(OutdatedFiles, match=r"^columns of table d\.t were added .* \((a|s\.x)\); they"):
        _commit(monkeypatch, pending, now)


def test_a_column_that_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the table that are written again would lose what a column has that others added meanwhile."""
    before, now = _schema(id=1, a=2), _schema(id=1, a=2, note=3)
    with pytest.raises(OutdatedFiles, match=r"\(note\)"):
        _commit(monkeypatch, attrs.evolve(_PENDING, schema_json=before), now)
    # Rows of events have no value for it.
    _commit(monkeypatch, attrs.evolve(_PENDING, schema_json=before, replaces=False), now)


@pytest.mark.parametrize("now", [_schema(id=1, a=2), _schema(a=2, id=1), _schema(id=1, b=2)])
def test_columns_that_have_other_names_or_places(monkeypatch: pytest.MonkeyPatch, now: str) -> None:
    """Columns are told by their ids: other names and another order change nothing for files."""
    _commit(monkeypatch, attrs.evolve(_PENDING, schema_json=_schema(id=1, a=2)), now)


def test_deletes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete files hold keys only: what became of other columns does not matter to them."""
    _commit(monkeypatch, attrs.evolve(_PENDING, files=[_DELETES], schema_json=_schema(id=1, a=2)), _schema(id=1))


@pytest.mark.parametrize("file", [_DATA, _DELETES])
def test_a_partition_spec_that_was_removed(monkeypatch: pytest.MonkeyPatch, file: FileDescription) -> None:
    """A spec that no file had, as that of equality deletes before the first, may be removed: files are written anew."""
    now = _schema(id=1)
    pending = attrs.evolve(_PENDING, files=[attrs.evolve(file, spec_id=1)], schema_json=now)
    _commit(monkeypatch, pending, now)
    with pytest.raises(OutdatedFiles, match=r"^table d\.t has lost partition spec 2 since"):
        _commit(monkeypatch, attrs.evolve(pending, files=[attrs.evolve(file, spec_id=2)]), now)
