"""Deleted keys that are looked for in data files without Spark: which rows they hit, and what is left to joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.iceberg.read.key_index_store import KeyIndexStore
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.write.position_deletes import DataFileDeletes, PositionDeletes
from connector.maintenance.conversion import key_search
from connector.maintenance.conversion.key_search import search_shard
from connector.maintenance.conversion.plan import AffectedDataFile, EqualityDeleteFile, Scope, group_deletes
from connector.maintenance.conversion.shards import MOST_RECORDS, Shard, plan_shards
from tests.unit.sink_plans import layout

pytestmark = pytest.mark.unit

COLUMNS = {"id": pa.int64(), "name": pa.string(), "v": pa.int64()}
TABLE = attrs.evolve(
    layout({}),
    schema_json=build_table_schema(
        pa.schema(list(COLUMNS.items())), (), frozenset(), nanoseconds=True
    ).model_dump_json(),
)
ANYWHERE: Scope = (0, "[]")
Row = tuple[int | None, str | None, int]


def _write(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Parquet file of some of the table's columns, with their ids."""
    fields = [TABLE.rows.field(name) for name in names]
    columns = [pa.array(values, field.type) for values, field in zip(zip(*rows, strict=True), fields, strict=True)]
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), path)
    return str(path)


def _task(path: str, records: int = 5, data_format: str = "parquet", deletes: Sequence[str] = ()) -> FileScanTask:
    before = tuple(PositionDeletes(path, True) for path in deletes)
    place = DataFileDeletes(0, (), before)
    return FileScanTask(lambda: None, path, data_format, 100, records, None, frozenset(), frozenset(), place)


def _delete(path: str, sequence: int, ids: tuple[int, ...], scope: Scope | None = None) -> EqualityDeleteFile:
    return EqualityDeleteFile(path, sequence, ids, 10, 100, scope)


def _shards(
    deletes: Sequence[EqualityDeleteFile],
    files: Mapping[str, tuple[int, Scope]],
    tasks: Sequence[FileScanTask] = (),
    most: int = 2,
) -> tuple[Shard, ...]:
    """Shards of data files, each with its sequence number and partition; newer deletes of it, or global ones, apply."""
    known = {task.path: task for task in tasks} or {path: _task(path) for path in files}
    affected = [
        AffectedDataFile(
            path,
            scope,
            frozenset(one.path for one in deletes if one.sequence_number > number and one.scope in (None, scope)),
        )
        for path, (number, scope) in files.items()
    ]
    return plan_shards(group_deletes(deletes, affected), TABLE, known, most)


def _search(shards: Sequence[Shard], store: KeyIndexStore | None = None) -> dict[str, list[int] | None]:
    found = (hit for shard in shards for hit in search_shard(shard, store or KeyIndexStore(None, 0)))
    return {path: None if positions is None else sorted(positions) for path, positions in found}


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_hit_as_the_specification_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A row is hit where a newer delete, of its partition or of none, has its key: by one column or several, with keys
    that are deleted again and again, nulls among the rows, and more keys than are looked for at once.
    """
    monkeypatch.setattr(key_search, "_PART_KEYS", 7)
    rng, kept = Random(seed), KeyIndexStore(tmp_path / "index", 2**30)
    rows, files, deletes, keys = dict[str, list[Row]](), dict[str, tuple[int, Scope]](), [], dict[str, set[Any]]()
    for number in range(1, 9):
        path = str(tmp_path / f"data{number}.parquet")
        rows[path] = [
            (rng.choice([*range(9), None]), rng.choice(["a", "b", None]), n) for n in range(rng.randint(1, 9))
        ]
        files[path] = number, (1, rng.choice("pq"))
        _write(Path(path), tuple(COLUMNS), rows[path])
        ids, names = rng.choice([((1,), ("id",)), ((1, 2), ("id", "name"))])
        path = str(tmp_path / f"delete{number}.parquet")
        keys[path] = {(rng.randrange(9), rng.choice("ab"))[: len(ids)] for _ in range(rng.randint(1, 6))}
        _write(Path(path), names, sorted(keys[path]))
        deletes.append(_delete(path, number, ids, rng.choice([None, (1, "p")])))

    def is_hit(path: str, row: Row) -> bool:
        number, scope = files[path]
        return any(
            one.sequence_number > number
            and one.scope in (None, scope)
            and row[: len(one.equality_ids)] in keys[one.path]
            for one in deletes
        )

    right = {path: [place for place, row in enumerate(own) if is_hit(path, row)] for path, own in rows.items()}
    for most in (1, 3):
        shards = _shards(deletes, files, most=most)
        for store in (None, kept, kept):
            found = _search(shards, store)
            assert {path: found.get(path, []) for path in files} == right


def test_what_only_icebergs_readers_read_is_told(tmp_path: Path) -> None:
    """Deletes of nulls, deletes and data files that are gone or have no ids: their data files are left to a join, and
    no other is.
    """
    data = {name: _write(tmp_path / f"{name}.parquet", ("id", "v"), [(1, 1), (2, 2)]) for name in "abc"}
    pq.write_table(pa.table({"id": [1], "v": [1]}), data["b"])
    some = _delete(_write(tmp_path / "some.parquet", ("id",), [(2,), (3,)]), 5, (1,), (1, "p"))
    nulls = _delete(_write(tmp_path / "nulls.parquet", ("id",), [(2,), (None,)]), 5, (1,), (1, "q"))
    gone = _delete(str(tmp_path / "gone.parquet"), 5, (1,), (1, "r"))
    missing = str(tmp_path / "missing.parquet")
    files = {data["a"]: (1, (1, "p")), data["b"]: (1, (1, "p")), missing: (1, (1, "p")), data["c"]: (1, (1, "q"))}
    assert _search(_shards([some, nulls], files)) == {data["a"]: [1], data["b"]: None, missing: None, data["c"]: None}
    assert _search(_shards([gone], {data["a"]: (1, (1, "r"))})) == {data["a"]: None}


def _names(shards: Sequence[Shard]) -> list[list[str]]:
    return [[file.path for file in shard.files] for shard in shards]


def test_which_files_are_not_searched() -> None:
    """Avro files, those with deletes in Avro, with deletes of a dropped column, and with too many keys are joined."""
    tasks = [_task("a"), _task("avro", data_format="avro"), _task("before", deletes=["d.avro"])]
    files = {task.path: (1, ANYWHERE) for task in tasks}
    assert _names(_shards([_delete("d", 2, (1,))], files, tasks)) == [["a"]]
    assert _shards([_delete("d", 2, (1,)), _delete("e", 2, (99,))], files, tasks) == ()
    assert _shards([attrs.evolve(_delete("d", 2, (1,)), data_format="avro")], files, tasks) == ()
    assert _shards([attrs.evolve(_delete("d", 2, (1,)), records=MOST_RECORDS + 1)], files, tasks) == ()


def test_a_task_reads_only_deletes_that_apply_to_its_files() -> None:
    """Files of a partition come to one task, with its deletes; sequence numbers leave out those that are too old."""
    deletes = [_delete("north", 5, (1,), (1, "n")), _delete("south", 4, (1,), (1, "s")), _delete("old", 2, (1,))]
    files = {"a": (3, (1, "n")), "b": (3, (1, "s")), "c": (3, (1, "n"))}
    shards = _shards(deletes, files, [_task(path, 10**6) for path in files], 3)
    assert [sorted(path for part in shard.deletes for path, _ in part.files) for shard in shards] == [
        ["north"],
        ["north"],
        ["south"],
    ]
    assert _names(shards) == [["a"], ["c"], ["b"]]


def test_tasks_are_as_many_as_pay() -> None:
    """Each task has at least as much of data files to read as of the deletes that all of them read."""
    files = {str(number): (1, ANYWHERE) for number in range(10)}
    tasks = [_task(path, 1_000_000) for path in files]
    few, many = _delete("d", 2, (1,)), attrs.evolve(_delete("d", 2, (1,)), records=4_000_000)
    assert [len(part) for part in _names(_shards([few], files, tasks, 4))] == [2, 3, 2, 3]
    assert len(_shards([many], files, tasks, 4)) == 2
    assert len(_shards([attrs.evolve(many, records=15_000_000)], files, tasks, 4)) == 1
