"""A run of maintenance in the simulated world: the product's own tasks, leases and commits, without Spark.

Iceberg's actions are those of `iceberg_actions`; the search for keys that were deleted is the product's, over files in
memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import orjson
import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.types import LongType

from connector.errors import FatalError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.commit import settlement
from connector.iceberg.commit.commit_summary import COMMIT_ID
from connector.iceberg.java import map_java_errors
from connector.iceberg.state.offset_rows import MAINTAINER, OffsetRows
from connector.maintenance import expiry, lease, maintainer, spark_actions
from connector.maintenance.conversion import conversion, key_search
from connector.maintenance.conversion.plan import EqualityDeleteFile, JoinGroup
from connector.maintenance.conversion.validation import LaterSnapshot
from connector.maintenance.expiry_rules import BranchHistory
from connector.maintenance.file_counts import FileCounts
from connector.maintenance.lease import LeaseTable
from connector.maintenance.maintainer import Maintainer, TaskOutcome
from connector.maintenance.table_state import SnapshotSummary
from connector.settings import SinkSettings
from tests.simulation.catalog_server import CatalogServer, LiveFile, SnapshotVersion
from tests.simulation.iceberg_actions import Actions, SettledTable, SnapshotChanges
from tests.simulation.interruptions import Interruptions, JavaError
from tests.simulation.java_table import JavaTable, count_changes
from tests.simulation.replacements import replaced
from tests.simulation.row_search import plan_files
from tests.simulation.store import store_away
from tests.simulation.tables import NoRewritesGuard, SimulatedCatalog

LATER_MS = 86_400_000
"""Expiry takes place so long after everything else: no snapshot stays for its age."""

_SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2), _jsparkSession=Mock())


def maintain(
    server: CatalogServer, calls: Interruptions, settings: SinkSettings, name: str, tasks: Sequence[str], rng: Random
) -> list[TaskOutcome]:
    """Do tasks of a table in a process of its own; raises as the product does."""
    with _in_memory(server, rng):
        catalog = SimulatedCatalog(server, calls, settings.errors, lambda: None)
        rows = OffsetRows(catalog, settings.table.offsets_table, "_maintenance", MAINTAINER)
        leases = LeaseTable(rows, f"maintainer-{server.next_id()}", lambda: server.now_ms)
        found = Maintainer(_SPARK, catalog, settings.table, settings.name, leases, in_flight_ms=0)
        table = found.load(name)
        return [] if table is None else found.run(table, tasks)


# --- what Spark and Java do ------------------------------------------------------------------------------------------


@contextmanager
def _in_memory(server: CatalogServer, rng: Random) -> Iterator[None]:
    java = _java(rng)
    clock = SimpleNamespace(time_ns=lambda: (server.now_ms + LATER_MS) * 1_000_000)
    with replaced(
        (
            (maintainer, "DeleteGuard", NoRewritesGuard),
            (maintainer, "read_history", _read_history),
            (maintainer, "delete_unfinished_files", _delete_unfinished_files),
            (maintainer, "count_live_files", lambda _, table, __: _count_files(table.java)),
            (maintainer, "count_rewrite_groups", lambda *_: 1),
            (expiry, "read_branch_histories", lambda table: [BranchHistory(_read_history(table))]),
            (expiry, "time", clock),
            (expiry, "activate_session", _nothing),
            (expiry, "jvm", lambda _: java),
            (spark_actions, "activate_session", _nothing),
            (spark_actions, "jvm", lambda _: java),
            (settlement, "jvm", lambda _: java),
            (settlement, "gateway_of", lambda _: _ANYTHING),
            (lease.threading, "Thread", _ANYTHING),
            (conversion, "read_equality_deletes", _read_equality_deletes),
            (conversion, "read_top_level_fields", _read_fields),
            (conversion, "plan_files", lambda _, table, base, where: plan_files(table.java, base, where)),
            (conversion, "write_hits", _write_hits),
            (conversion, "_join", _refuse_to_join),
            (conversion, "_later_snapshot", _describe_later),
        )
    ):
        yield


class _Anything:
    """What is called, and does nothing; a mock would remember each call."""

    def __call__(self, *_: Any, **__: Any) -> _Anything:
        return self

    def __getattr__(self, name: str) -> _Anything:
        return self


_ANYTHING = _Anything()


def _nothing(*_: Any) -> None:
    """What only a session of Spark's needs."""


def _refuse_to_join(_: Any, table: Any, __: Any, tasks: Mapping[str, Any], groups: Sequence[JoinGroup]) -> None:
    """Arrow reads all files that are there, of rows and of deletes."""
    deletes = (delete.path for group in groups for delete in group.deletes)
    if all(path in table.java.server.files for path in (*tasks, *deletes)):
        raise AssertionError("files are not read")
    raise FatalError(f"a file of {table.name} is gone")


def _java(rng: Random) -> Any:
    """Java's classes."""
    throwable = {
        name: lambda *told, name=name: JavaError(name, str(told[0]))
        for name in ("ValidationException", "CommitStateUnknownException")
    }
    iceberg = SimpleNamespace(
        BaseTable=lambda operations, _: SettledTable(operations, operations.table.java),
        exceptions=SimpleNamespace(**throwable),
        SnapshotChanges=SnapshotChanges,
        spark=SimpleNamespace(actions=SimpleNamespace(SparkActions=SimpleNamespace(get=lambda _: Actions(rng)))),
    )
    lang = SimpleNamespace(Object=None, RuntimeException=lambda told: JavaError("RuntimeException", told))
    java = SimpleNamespace(lang=lang, util=_ANYTHING)
    return SimpleNamespace(java=java, org=SimpleNamespace(apache=SimpleNamespace(iceberg=iceberg)))


def _read_history(table: Any) -> list[SnapshotSummary]:
    """As `table_history.read_history`, with Iceberg's totals."""
    return [
        SnapshotSummary(one.id, one.made_ms, one.operation, {**one.summary, **_totals(one)})
        for one in table.java.now.ancestors()
    ]


def _count_files(java: JavaTable) -> FileCounts:
    """As `live_files.count_live_files`, of which every data file is small."""
    newest = java.now.newest
    kinds = [] if newest is None else [file.content for file in newest.files]
    by_key, by_place = kinds.count("equality-deletes"), kinds.count("position-deletes")
    return FileCounts(0 if newest is None else newest.id, by_key, by_place, 0, kinds.count("data"))


def _totals(one: SnapshotVersion) -> dict[str, str]:
    kinds = [file.content for file in one.files]
    data, by_key = kinds.count("data"), kinds.count("equality-deletes")
    counts = {
        "total-data-files": data,
        "total-files-size": data,
        "total-delete-files": len(kinds) - data,
        "total-equality-deletes": by_key,
    }
    return {name: str(count) for name, count in counts.items()}


def _read_equality_deletes(_: Any, table: Any, snapshot_id: int) -> list[EqualityDeleteFile]:
    java: JavaTable = table.java
    files = java.now.snapshots[snapshot_id].files

    def read() -> list[EqualityDeleteFile]:
        return [_describe_delete(java, file) for file in files if file.content == "equality-deletes"]

    try:
        found = java.calls.call(f"read deletes of {java.now.name}", read, store_away)
    except KeyError as gone:
        raise FatalError(f"file {gone} of {java.now.name} is gone") from gone
    return sorted(found, key=lambda file: (file.sequence_number, file.path))


def _describe_delete(java: JavaTable, file: LiveFile) -> EqualityDeleteFile:
    ids = [row["id"] for row in java.server.read(file.path)]
    low, high = (to_bytes(LongType(), value) for value in (min(ids), max(ids)))
    return EqualityDeleteFile(file.path, file.number, (1,), len(ids), 1, None, bounds={1: (low, high)}, java=file)


def _read_fields(_: Any, table: Any) -> dict[int, Any]:
    return {field["id"]: field for field in orjson.loads(table.java.now.schema_json)["fields"]}


def _write_hits(
    _: Any, layout: Any, shards: Sequence[Any], index_bytes: int, *, as_vectors: bool
) -> tuple[list[FileDescription], frozenset[str]]:
    """As `key_search.write_hits`, the tasks one after the other."""
    numbers = pa.RecordBatch.from_pydict({"id": list(range(len(shards)))})
    made = key_search._search_shards(iter([numbers]), shards, layout, 0, as_vectors=as_vectors)
    rows = [row for batch in made for row in batch.to_pylist()]
    written = [FileDescription.of(orjson.loads(row["file"])) for row in rows if row["file"] is not None]
    return written, frozenset(row["unread"] for row in rows if row["unread"] is not None)


def _describe_later(_: Any, table: Any, snapshot: Any, commit_id: str) -> LaterSnapshot:
    """As `conversion._later_snapshot`."""
    one: SnapshotVersion = snapshot.version
    before = table.java.server.ever.get(one.parent)
    old, new = set(before.files if before is not None else ()), set(one.files)

    def files() -> Iterable[str]:
        yield from (file.path for file in old - new if file.is_data)
        yield from (str(file.referenced) for file in new - old if not file.is_data)

    summary = {**count_changes(before, one.files), **one.summary}
    return LaterSnapshot(one.id, one.operation, summary, files, one.summary.get(COMMIT_ID) == commit_id)


def _delete_unfinished_files(_: Any, table: Any, __: Any, folder: str) -> int:
    """As `orphan_files.delete_unfinished_files`."""
    server: CatalogServer = table.java.server
    versions = table.java.now.snapshots.values()
    needed = {file.path for one in versions for file in one.files}
    gone = [path for path in server.files if path.startswith(f"{folder}/") and path not in needed]
    with map_java_errors(f"deleting files of a run of {table.name} that was killed"):
        for path in gone:
            table.java.deleteFile(path)
    return len(gone)


__all__ = ["maintain"]
