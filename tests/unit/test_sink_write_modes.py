"""What every write mode promises (`write_modes.base.WriteMode`): a new mode passes this suite as it is."""

from __future__ import annotations

import pickle
from typing import Any
from unittest.mock import MagicMock, Mock

import pyarrow as pa
import pytest

from connector.iceberg.commit.commit import RowsToReplace
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE
from connector.settings.iceberg.write_mode import APPEND_MODE, DECLARED_MODES, DEFAULT_MODE, MODE
from connector.sink.convert.decoder import decode
from connector.sink.destinations.iceberg.write.file_writer import write_upserts
from connector.sink.destinations.iceberg.write_modes.base import WriteMode
from connector.sink.destinations.iceberg.write_modes.registry import WRITE_MODES
from connector.sink.fold.fold import fold
from connector.sink.model import task_output
from connector.sink.model.driver_output import KeysToReplace
from connector.sink.model.task_output import OutputKind, TaskOutput
from tests.unit.sink_plans import plan, run, upsert

COLUMNS = {"id": pa.int64(), "name": pa.string()}


@pytest.fixture(params=WRITE_MODES, name="name")
def write_mode_name(request: pytest.FixtureRequest) -> str:
    """Each registered mode."""
    name: str = request.param
    return name


@pytest.fixture(name="mode")
def write_mode(name: str) -> WriteMode:
    """What the mode does."""
    return WRITE_MODES[name]


class WriterTwin:
    """A `TableWriter` that keeps what it is given."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.written: list[dict[str, Any]] = []
        self.deleted: list[dict[str, Any]] = []

    def write_rows(self, batch: pa.RecordBatch) -> None:
        """Keep rows."""
        self.written.extend(batch.to_pylist())

    def write_equality_deletes(self, keys: pa.RecordBatch) -> None:
        """Keep the keys of equality deletes."""
        self.deleted.extend(keys.to_pylist())


def _write(name: str, *events: dict[str, Any] | None, known: KeyBounds) -> tuple[WriterTwin, list[TaskOutput]]:
    """Write events with keys 1, 2, ... into a table that has these keys, in a mode; None is a tombstone."""
    table = upsert(0, COLUMNS, ("id",), write_mode=name, known_keys=known)
    parts = decode(run(*events, keys=[{"id": place + 1} for place in range(len(events))]), plan(table)).parts
    writer: Any = WriterTwin()
    return writer, list(write_upserts(writer, fold(parts, table.layout.keys), table))


def _keys(outputs: list[TaskOutput]) -> list[int]:
    """The keys that are to be looked up."""
    handed = [output for output in outputs if output.kind == OutputKind.KEYS]
    return [key for output in handed for key in task_output.unpack_keys(pa.py_buffer(output.payload))["id"].to_pylist()]


def test_names_are_declared_once() -> None:
    """Options, their documentation and the registry have the same modes."""
    assert list(WRITE_MODES) == list(DECLARED_MODES)
    assert all(name in MODE.doc for name in WRITE_MODES)
    assert DECLARED_MODES[DEFAULT_MODE].replaces_rows
    assert not DECLARED_MODES[APPEND_MODE].replaces_rows


def test_rows_go_in_one_way(name: str, mode: WriteMode) -> None:
    """A mode that replaces rows deletes by key or looks up, never both; the others do neither."""
    assert mode.looks_up_rows + mode.writes_equality_deletes == DECLARED_MODES[name].replaces_rows
    assert mode.min_format_version in (1, 2, 3)


def test_tasks_get_it(mode: WriteMode) -> None:
    """It has no state that pickling could lose."""
    assert vars(pickle.loads(pickle.dumps(mode))) == vars(mode) == {}


def test_keys(name: str, mode: WriteMode) -> None:
    """A key on the top level is fine in each; a list, map or variant is none wherever rows are replaced by key."""
    columns = pa.schema([*COLUMNS.items(), ("tags", pa.list_(pa.int64())), ("v", VARIANT_ARROW_TYPE)])
    assert mode.find_key_fault(columns, ("id", "name")) is None
    for key in ("tags", "v"):
        fault = mode.find_key_fault(columns, ("id", key))
        assert (f"({key}:" in str(fault)) is DECLARED_MODES[name].replaces_rows


def test_what_a_task_writes(name: str, mode: WriteMode) -> None:
    """Rows that are there; the keys of all changes, deletes among them, are deleted, or handed to the look-up."""
    writer, outputs = _write(name, {"id": 1, "name": "a"}, None, {"id": 3, "name": "c"}, known=KeyBounds())
    assert writer.written == [{"id": 1, "name": "a"}, {"id": 3, "name": "c"}]
    keys = [key["id"] for key in writer.deleted] if mode.writes_equality_deletes else _keys(outputs)
    assert sorted(keys) == ([1, 2, 3] if DECLARED_MODES[name].replaces_rows else [])
    assert bool(writer.deleted) is mode.writes_equality_deletes
    assert {output.kind for output in outputs} == (
        {OutputKind.KEYS, OutputKind.DRIVER} if mode.looks_up_rows else set()
    )
    told = [task_output.unpack_value(output.payload) for output in outputs if output.kind == OutputKind.DRIVER]
    assert all(isinstance(value, KeysToReplace) for value in told)


def test_an_empty_table(name: str, mode: WriteMode) -> None:
    """Keys that the table provably does not hold need no delete; a look-up finds that out by itself."""
    writer, outputs = _write(name, {"id": 1, "name": "a"}, known=KeyBounds.nothing())
    assert writer.written == [{"id": 1, "name": "a"}]
    assert not writer.deleted
    assert _keys(outputs) == ([1] if mode.looks_up_rows else [])


def test_nothing_to_replace(mode: WriteMode) -> None:
    """Without affected files no file is taken out of the table."""
    update = Mock()
    mode.apply(update, RowsToReplace())
    assert not update.removeRows.called
    assert not update.removeDeletes.called


def test_what_another_writer_did_in_between_is_checked(mode: WriteMode) -> None:
    """A mode that looked rows up has Iceberg refuse the commit where files, or deletes in them, are not as found."""
    update, file = Mock(), MagicMock(path="a.parquet")
    mode.apply(update, RowsToReplace([file]))
    checks = [call for call, *_ in update.method_calls if call.startswith("validate")]
    assert bool(checks) is mode.looks_up_rows
