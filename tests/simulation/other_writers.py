"""Another engine's changes of single rows -> commits to a simulated table, by new files or by position deletes."""

from __future__ import annotations

import io
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from connector.iceberg.write.deletion_vectors import PUFFIN_MAGIC, encode_vector
from tests.simulation.catalog_server import CatalogServer, LiveFile, SnapshotVersion

Way = Literal["rewrite", "positions"]


def change_row(server: CatalogServer, name: str, key: int, row: dict[str, Any] | None, way: Way) -> None:
    """Put a row in the place of that of a key, or only take it out; a key without row stays as it is."""
    base = server.tables[name].newest
    found = None if base is None else next((one for one in server.live_rows(base) if one[2]["id"] == key), None)
    if base is None or found is None:
        return
    file, position, _ = found
    added = [server.write(name, [row], 0)] if row is not None else []
    if way == "positions":
        kept, made = _delete_position(server, name, base, file, position)
        operation = "overwrite" if row is not None else "delete"
        server.commit_foreign(name, operation, [*kept, *made, *added], added=row is not None)
        return
    rest = [other for one, at, other in server.live_rows(base) if one is file and at != position]
    # Rows that stay are as of the snapshot that was read, as deletes of keys that came since would else take them.
    written = [server.write(name, rest, 0)] if rest else []
    kept = [one for one in base.files if one is not file and one.referenced != file.path]
    server.commit_foreign(name, "overwrite", [*kept, *written, *added], added=True)


def _delete_position(
    server: CatalogServer, name: str, base: SnapshotVersion, file: LiveFile, position: int
) -> tuple[list[LiveFile], list[LiveFile]]:
    """As engines do: a vector replaces the one before, files of positions pile up."""
    path = f"{name}/data/other-{server.next_id()}"
    if server.tables[name].format_version < 3:
        sink = io.BytesIO()
        pq.write_table(pa.table({"file_path": [file.path], "pos": pa.array([position], pa.int64())}), sink)
        server.files[f"{path}.parquet"] = sink.getvalue()
        return list(base.files), [LiveFile(f"{path}.parquet", "position-deletes", referenced=file.path)]
    before = server.deleted_positions(file.path, base.files)
    blob = encode_vector(BitMap64([position, *before]))
    server.files[f"{path}.puffin"] = PUFFIN_MAGIC + blob
    vector = LiveFile(f"{path}.puffin", "position-deletes", None, 0, file.path, len(PUFFIN_MAGIC), len(blob))
    return [one for one in base.files if one.referenced != file.path], [vector]
