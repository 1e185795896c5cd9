"""Small files of our own tables: which of them are merged, and what is in the file that they become."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.scan_planning import FileScanTask
from connector.iceberg.state.deleted_keys_table import DELETED_KEYS_COLUMNS, DELETED_KEYS_SCHEMA
from connector.iceberg.state.small_files import choose_small_files, write_together
from connector.iceberg.write.position_deletes import DataFileDeletes

pytestmark = pytest.mark.unit

MIB = 1024**2
BY_DAY = (
    '{"spec-id":0,"fields":[{"source-id":1,"transform":"identity","name":"connector","field-id":1000},'
    '{"source-id":5,"transform":"day","name":"noted_at_day","field-id":1001}]}'
)


def _file(
    path: str, size_bytes: int, day: str = "2026-11-27", data_format: str = "parquet", deletes: tuple[str, ...] = ()
) -> FileScanTask:
    place = DataFileDeletes(0, ("a sink", day))
    return FileScanTask(lambda: None, path, data_format, size_bytes, 1, None, frozenset(deletes), frozenset(), place)


def _choose(*sizes: int) -> list[int]:
    return sorted(file.size_bytes for file in choose_small_files(_file(str(i), size) for i, size in enumerate(sizes)))


@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ((), []),
        ((1, 1, 1, 1), []),
        ((1, 1, 1, 1, 1), [1, 1, 1, 1, 1]),
        ((1, 1, 1, 1, 1, 5), [1, 1, 1, 1, 1, 5]),
        ((1, 1, 1, 1, 1, 6), [1, 1, 1, 1, 1]),
        ((1, 1, 1, 1, 6), []),
        ((1, 6, 6, 6, 6), [1, 6, 6, 6, 6]),
        ((MIB, 16 * MIB, 16 * MIB, MIB, MIB, MIB, MIB), [MIB] * 5),
        ((8 * MIB,) * 100, [8 * MIB] * 8),
    ],
)
def test_files_are_merged_with_those_that_are_no_larger_than_all_others_together(
    sizes: tuple[int, ...], chosen: list[int]
) -> None:
    """No file is written anew for a few that are small beside it; large ones, fewer than five, and all beyond 64 MiB
    stay."""
    assert _choose(*sizes) == chosen


def test_files_of_each_partition_are_merged_by_themselves() -> None:
    """Days have files of their own; files with deletes, and those of other formats, stay."""
    files = [_file(f"{day}-{i}", 1, day) for day in ("1", "2") for i in range(5)]
    others = [_file("few", 1, "3"), _file("hit", 1, "1", deletes=("d",)), _file("avro", 1, "1", "avro")]
    assert sorted(file.path for file in choose_small_files([*others, *files])) == sorted(file.path for file in files)


def test_a_steady_load_leaves_few_files_and_is_seldom_written_anew() -> None:
    """Days of a hundred files a minute: a row is written a few times more, however many there are."""
    random, sizes, ingested, rewritten, most = Random(7), list[int](), 0, 0, 0
    for _ in range(3 * 24 * 60):
        fresh = [random.randrange(2_000, 20_000) for _ in range(100)]
        sizes, ingested = [*sizes, *fresh], ingested + sum(fresh)
        chosen = _choose(*sizes)
        for size in chosen:
            sizes.remove(size)
        sizes, rewritten = [*sizes, sum(chosen)] if chosen else sizes, rewritten + sum(chosen)
        most = max(most, sum(size < 16 * MIB for size in sizes))
    assert most < 16
    assert rewritten / ingested < 8


def test_merged_files_have_the_rows_of_all_in_the_columns_of_today(tmp_path: Path) -> None:
    """Files of earlier versions lack columns, other engines' order them anew: rows keep what they say."""
    layout = TableLayout("d.t", "u", str(tmp_path), DELETED_KEYS_SCHEMA.model_dump_json(), BY_DAY, 0, {}, {})
    noted, kept = datetime(2026, 11, 27, tzinfo=UTC), DELETED_KEYS_COLUMNS
    rows = [
        {"connector": "a sink", "table": "t", "key": str(i), "date": i, "noted_at": noted, "source": i, "place_0": 1}
        for i in range(3)
    ]
    older = pa.schema([kept.field(i) for i in range(5)])
    anew = pa.schema([kept.field(i) for i in reversed(range(len(kept)))])
    for i, schema in enumerate((kept, older, anew)):
        pq.write_table(pa.Table.from_pylist([rows[i]], schema), tmp_path / f"{i}.parquet", store_schema=False)
    (written,) = write_together(layout, [_file(str(tmp_path / f"{i}.parquet"), 1) for i in range(3)])
    table = pq.read_table(written.path)
    assert table.schema.equals(kept)
    expected = [dict.fromkeys(kept.names) | row for row in rows]
    expected[1] |= {"source": None, "place_0": None}
    assert table.to_pylist() == expected
    assert "/connector=a+sink/noted_at_day=2026-11-27/merged-" in written.path
