"""Tables of which one cannot be read -> what status and offsets show of the others."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from connector.cli.offsets import source
from connector.cli.status import sink_state
from connector.errors import FatalError
from connector.settings import load
from connector.settings.source.settings import load_source
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.table_offset import TableOffset

pytestmark = pytest.mark.unit

SINK = {"bootstrap.servers": "h:1", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
SOURCE = {"bootstrap.servers": "h:1", "topic.prefix": "p", "iceberg.catalog.warehouse": "/w"}
GONE = FatalError("loading table db.bad: NotFoundException: its metadata file is gone")
DRIVER = cast("Any", None)


def _load(*names: str) -> Any:
    """Give a table by its name, the last of several; there is nothing to read of `bad`."""
    if names[-1].endswith("bad"):
        raise GONE
    return SimpleNamespace(name=f"db.{names[-1]}", uuid="u", follow=Mock(), ancestors=list)


def test_a_table_that_a_sink_cannot_read_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is shown without a snapshot, what is wrong with it is told, and the other tables are shown."""
    noted = {name: SimpleNamespace(position=SimpleNamespace(offsets={("t", 0): 3})) for name in ("db.bad", "db.good")}
    catalog, stored = SimpleNamespace(load=_load, full_name=str), SimpleNamespace(tables=noted, position=None)
    monkeypatch.setattr(sink_state, "_open_offsets", lambda *_: (catalog, stored))
    found = sink_state.read_state(DRIVER, load([], SINK, {}))
    assert [(one.name, one.snapshot, one.noted) for one in found.tables] == [
        (name, None, {("t", 0): 3}) for name in ("db.bad", "db.good")
    ]
    assert "its metadata file is gone" in capsys.readouterr().err


def _open_source(monkeypatch: pytest.MonkeyPatch, stored: dict[str, str] | None = None) -> tuple[Any, Mock]:
    rows = Mock(by_table=dict(stored or {}))
    names = {f"db.{name}": (("db",), name) for name in ("bad", "good")}
    monkeypatch.setattr(source, "open_driver", lambda _: nullcontext())
    monkeypatch.setattr(source, "Catalog", lambda *_: SimpleNamespace(find=_load))
    monkeypatch.setattr(source, "_open_rows", lambda *_: rows)
    monkeypatch.setattr(source.discovery, "find_tables", lambda *_: names)
    monkeypatch.setattr(source, "SnapshotHistory", lambda *_: SimpleNamespace(newest=lambda: 7))
    monkeypatch.setattr(source, "read_history", lambda _: None)
    return load_source([], SOURCE, {}), rows


def test_a_table_that_a_source_cannot_read_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is shown as one that cannot be read, not as one that is gone, and what is wrong is told beside the others."""
    settings, _ = _open_source(monkeypatch)
    found = source.read_tables(DRIVER, settings, {})
    assert [source._format_row(one)[:3] for one in found] == [["db.bad", "-", "cannot be read"], ["db.good", "-", "7"]]
    assert "its metadata file is gone" in capsys.readouterr().err


def test_the_newest_snapshot_of_a_table_that_cannot_be_read_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--to latest` refuses it and changes nothing; others that are named are set, and its offset is forgotten."""
    settings, rows = _open_source(monkeypatch)
    with pytest.raises(FatalError, match="name the other tables"):
        source.reset(settings, to="latest", tables=(), execute=True)
    assert not rows.put.called and not rows.forget.called
    source.reset(settings, to="latest", tables=("db.good",), execute=True)
    source.reset(settings, to="earliest", tables=("db.bad",), execute=True)
    assert [list(call.args[1]) for call in rows.put.call_args_list] == [["db.good"], []]


def test_a_reset_keeps_the_time_of_what_was_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset is shown as none, and what comes next is dated behind what consumers have."""
    published = {"db.good": TableOffset(SnapshotOffset("u", 5), 7_000).json()}
    settings, rows = _open_source(monkeypatch, published)
    source.reset(settings, to="earliest", tables=(), execute=True)
    (told,) = (call.args[1] for call in rows.put.call_args_list)
    assert told == {"db.good": TableOffset(SnapshotOffset("", None), 7_000).json()}
    shown = source.read_tables(DRIVER, settings, told)
    assert [source._format_row(one)[1:] for one in shown if one.name == "db.good"] == [["-", "7", "", ""]]


def test_a_table_that_is_read_no_more_is_not_shown_after_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the time of what was published is left of it, which says nothing to anybody."""
    offsets = {name: TableOffset(SnapshotOffset(uuid, 5), 7_000).json() for name, uuid in (("db.a", "u"), ("db.b", ""))}
    settings, _ = _open_source(monkeypatch, offsets)
    assert [one.name for one in source.read_tables(DRIVER, settings, offsets)] == ["db.a", "db.bad", "db.good"]
