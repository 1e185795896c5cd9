"""Position deletes: one delete file or vector per data file, with what older ones delete taken in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io

from connector.errors import FatalError
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.read.positional_reader import read_rows_at
from connector.iceberg.write.position_deletes import (
    DataFileDeletes,
    PositionDeletes,
    PositionDeleteWriter,
    read_deleted_positions,
)
from tests.unit.sink_plans import layout

ONE, TWO = "file:/data/one.parquet", "file:/data/two.parquet"


def _layout(tmp_path: Path) -> TableLayout:
    return attrs.evolve(layout({"id": pa.int64()}, ("id",)), location=str(tmp_path))


def _written(
    tmp_path: Path, places: dict[str, DataFileDeletes], *rows: tuple[str, int], as_vectors: bool
) -> list[dict[str, Any]]:
    """Delete these places, given in batches of two, and give the descriptions."""
    writer = PositionDeleteWriter(_layout(tmp_path), "x", places, as_vectors=as_vectors)
    found: list[FileDescription] = []
    for start in range(0, len(rows), 2):
        files, positions = zip(*rows[start : start + 2], strict=True)
        found += writer.take(pa.array(files), pa.array(positions, pa.int64()))
    found += writer.close()
    return [orjson.loads(description.json) for description in found]


def _positions(description: dict[str, Any]) -> list[int]:
    offset, size = description.get("content-offset"), description.get("content-size-in-bytes")
    file = PositionDeletes(description["file-path"], True, offset, size)
    return list(read_deleted_positions(load_file_io({}, file.path), file, description["referenced-data-file"]))


@pytest.mark.parametrize("as_vectors", [False, True])
def test_each_data_file_gets_one_that_holds_all_its_positions(tmp_path: Path, as_vectors: bool) -> None:
    """Positions of a file that come in several batches, twice and unsorted end in one delete file or vector."""
    places = {ONE: DataFileDeletes(3, ("a",)), TWO: DataFileDeletes(0, ())}
    rows = [(ONE, 5), (ONE, 1), (ONE, 5), (ONE, 2**33), (TWO, 0)]
    one, two = _written(tmp_path, places, *rows, as_vectors=as_vectors)
    assert [_positions(one), _positions(two)] == [[1, 5, 2**33], [0]]
    assert (one["spec-id"], one["partition"], one["record-count"]) == (3, ["a"], 3)
    assert [one["file-format"], two["file-format"]] == [("parquet", "puffin")[as_vectors]] * 2
    assert (one["file-path"] == two["file-path"]) == as_vectors


def test_what_older_deletes_hold_is_taken_in(tmp_path: Path) -> None:
    """A vector takes in the file's own vector and older delete files, also those that are about other files too."""
    place = DataFileDeletes(0, ())
    (old,) = _written(tmp_path, {ONE: place}, (ONE, 1), as_vectors=False)
    (vector,) = _written(tmp_path, {ONE: place}, (ONE, 2), as_vectors=True)
    shared = tmp_path / "data" / "shared.parquet"
    pq.write_table(pa.table({"file_path": [ONE, TWO], "pos": np.array([3, 4])}), shared)
    before = (
        PositionDeletes(old["file-path"], True),
        PositionDeletes(vector["file-path"], True, vector["content-offset"], vector["content-size-in-bytes"]),
        PositionDeletes(str(shared), False),
    )
    place = attrs.evolve(place, deletes=before)
    (new,) = _written(tmp_path, {ONE: place}, (ONE, 9), as_vectors=True)
    assert _positions(new) == [1, 2, 3, 9]
    # In version 2 a delete file that is about other files too stays beside the new one.
    (new,) = _written(tmp_path, {ONE: attrs.evolve(place, deletes=before[::2])}, (ONE, 9), as_vectors=False)
    assert _positions(new) == [1, 9]


def test_an_older_delete_file_of_another_format_is_refused(tmp_path: Path) -> None:
    """Avro and ORC delete files are not read: the error names the file and the way out."""
    place = DataFileDeletes(0, (), (PositionDeletes("file:/data/old-deletes.avro", False),))
    with pytest.raises(FatalError, match="rewrite_position_delete_files"):
        _written(tmp_path, {ONE: place}, (ONE, 9), as_vectors=True)


def test_rows_of_files_without_field_ids(tmp_path: Path) -> None:
    """Files that another engine's table had are read by the table's name mapping; without one nothing is guessed."""
    path = tmp_path / "imported.parquet"
    inner = pa.struct([("a", pa.int64())])
    pq.write_table(pa.table({"key": [1, 2], "old_s": pa.array([{"a": 5}, {"a": 6}], inner)}), path)
    known = layout({"id": pa.int64(), "s": inner}, ("id",))
    field = known.columns.field("s")
    number = int((field.metadata or {})[b"PARQUET:field_id"])
    mapping = [{"field-id": 99, "names": ["key"]}, {"field-id": number, "names": ["s", "old_s"]}]
    mapped = attrs.evolve(known, properties={"schema.name-mapping.default": orjson.dumps(mapping).decode()})
    asked = pa.array([str(path)] * 2), pa.array([1, 0]), [field]
    (column,) = read_rows_at(mapped, *asked)
    assert column.to_pylist() == [{"a": 6}, {"a": 5}]
    with pytest.raises(FatalError, match="has no field ids"):
        read_rows_at(known, *asked)
