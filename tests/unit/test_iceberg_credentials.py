"""Vended credentials: when a table is loaded again, and that whoever reads or writes its files has the newest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from unittest.mock import MagicMock, Mock

import attrs
import pyarrow as pa
import pytest

from connector.iceberg.catalog import table as table_module
from connector.iceberg.catalog.credentials import DEFAULT_LIFETIME_MS, renewal_time_ms
from connector.iceberg.catalog.table import Table
from connector.iceberg.state import system_tables
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.iceberg.write.rolling_file import FileKind
from tests.unit.sink_plans import layout

OWN = {"s3.endpoint": "http://s3", "s3.access-key-id": "own"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (OWN, None),
        ({**OWN, "write.object-storage.enabled": "true"}, None),
        ({**OWN, "s3.session-token": "x", "s3.session-token-expires-at-ms": "3000"}, 2000),
        ({**OWN, "gcs.oauth2.token": "x", "gcs.oauth2.token-expires-at": "5000"}, 3000),
        ({"adls.sas-token.a": "x", "adls.sas-token-expires-at-ms.a": "9000"}, 5000),
        ({"adls.sas-token-expires-at-ms.a": "9000", "s3.session-token-expires-at-ms": "1400"}, 1200),
        ({**OWN, "s3.access-key-id": "vended"}, 1000 + DEFAULT_LIFETIME_MS),
        ({**OWN, "s3.session-token-expires-at-ms": "10"}, 1000),
    ],
)  # fmt: skip
def test_tables_are_loaded_again_before_their_credentials_end(given: dict[str, str], expected: int | None) -> None:
    """Half way to the first end; after a while where no end is told; never where the catalog vends none."""
    assert renewal_time_ms(given, OWN, 1000) == expected


class Loads:
    """A catalog that hands out a new token with each load, good for 1,000 ms, on a clock of its own."""

    def __init__(self) -> None:
        self.now_ms, self._tokens = 0, count(1)

    def load(self) -> Any:
        """A table as Java has it, and the properties of its files."""
        java = MagicMock()
        java.io().properties.return_value = {
            "s3.session-token": str(next(self._tokens)),
            "s3.session-token-expires-at-ms": str(self.now_ms + 1_000),
        }
        java.location.return_value = "s3://b/t"
        return java

    def table(self) -> Table:
        """The table, as a catalog gives it."""
        return Table(Mock(), "d.t", self.load(), {"type": "rest"}, None, self.load)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loads]:
    """Such a catalog; no JVM is behind it."""
    made = Loads()
    monkeypatch.setattr(table_module, "to_dict", dict)
    monkeypatch.setattr(table_module, "vended_credentials", lambda *_: {})
    monkeypatch.setattr(table_module, "_now_ms", lambda: made.now_ms)
    yield made


def _token(table: Table) -> str:
    return str(table.java.io().properties()["s3.session-token"])


def test_tasks_get_the_credentials_that_a_commit_had_renewed(loads: Loads) -> None:
    """Whoever had a table loaded again, a commit or a look at it, the next tasks have what came with it."""
    table = loads.table()
    deleted = object.__new__(DeletedKeysTable)
    given = layout({"id": pa.int64()}, ("id",))
    deleted._table = table
    deleted._layout = attrs.evolve(given, io_properties=table.io_properties())
    assert deleted.layout.io_properties["s3.session-token"] == "1"
    for turn in range(2, 6):
        loads.now_ms += 600
        table.refresh()
        assert (_token(table), deleted.layout.io_properties["s3.session-token"]) == (str(turn), str(turn))
    assert deleted.layout is deleted.layout


def _commit(table: Table) -> None:
    table.refresh()


def _write(table: Table) -> None:
    kind = FileKind("data", 0, Mock(), pa.schema([]), 0)
    system_tables.write_file(table, kind, pa.table({"id": [1]}))


@pytest.mark.parametrize("use", [_commit, _write], ids=["commit", "write"])
def test_tables_that_only_the_driver_writes_are_loaded_again(
    loads: Loads, use: Callable[[Table], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets and schemas: nobody else asks for the credentials of their files, which end all the same."""
    monkeypatch.setattr(system_tables, "describe_uncounted", Mock())
    table = loads.table()
    for now_ms, token in ((0, "1"), (499, "1"), (501, "2"), (900, "2"), (1_002, "3")):
        loads.now_ms = now_ms
        use(table)
        assert _token(table) == token
