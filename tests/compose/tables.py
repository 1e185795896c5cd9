"""The stack's REST catalog and S3 server -> the rows of its Iceberg tables, by PyIceberg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table


def open_catalog(env: Mapping[str, str]) -> Catalog:
    """Return the stack's catalog, by its ports on this host."""
    return load_catalog(
        "lake",
        type="rest",
        uri=f"http://127.0.0.1:{env['CATALOG_PORT']}",
        **{
            "s3.endpoint": f"http://127.0.0.1:{env['S3_PORT']}",
            "s3.access-key-id": env["S3_ACCESS_KEY"],
            "s3.secret-access-key": env["S3_SECRET_KEY"],
            "s3.region": "us-east-1",
        },
    )


def read_customers(catalog: Catalog) -> dict[int, str]:
    """Return id -> first name of `inventory.customers`; empty before there is a table."""
    try:
        table = catalog.load_table("inventory.customers")
    except NoSuchTableError:
        return {}
    snapshot = table.current_snapshot()
    if snapshot is None:
        return {}
    if snapshot.summary and int(snapshot.summary["total-equality-deletes"] or 0):
        return _merge(table)
    return {row["id"]: row["first_name"] for row in table.scan().to_arrow().to_pylist()}


def _merge(table: Table) -> dict[int, str]:
    """Apply equality deletes, which PyIceberg does not read: by sequence numbers, as the specification says."""
    rows: dict[int, tuple[int, str]] = {}
    deleted: dict[int, int] = {}
    for number, row in _read_entries(table):
        if "first_name" in row:
            rows[row["id"]] = max(rows.get(row["id"], (0, "")), (number, row["first_name"]))
        else:
            deleted[row["id"]] = max(deleted.get(row["id"], 0), number)
    return {key: name for key, (number, name) in rows.items() if deleted.get(key, 0) <= number}


def _read_entries(table: Table) -> list[tuple[int, dict[str, Any]]]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    found = []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io):
            with table.io.new_input(entry.data_file.file_path).open() as file:
                found += [(entry.sequence_number or 0, row) for row in pq.read_table(file).to_pylist()]
    return found
