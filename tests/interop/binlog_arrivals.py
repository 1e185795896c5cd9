"""the story's records and a sink -> whether its tables are what the database has."""

from __future__ import annotations

from tests.conftest import MakeWorkspace, OpenLake
from tests.interop.binlog_connectors import prefix_of, topics_of
from tests.interop.binlog_recording import read_truth
from tests.interop.binlog_server import DATABASE, BinlogServer
from tests.interop.binlog_story import TABLES
from tests.model.binlog_rows import UNTOLD, lose_nulls, row_text
from tests.servers.shared import SharedRegistry

DELETES = ("hard", "soft")
# What ExtractNewRecordState gives is without truncates, so it is for tests of recorded events.
VARIANTS = ("schema", "plain", "avro")


def find_differences(
    server: BinlogServer,
    registry: SharedRegistry,
    make_workspace: MakeWorkspace,
    lake: OpenLake,
    variant: str,
    deletes: str,
) -> dict[str, list[dict[str, str | None]]]:
    """Run a sink over all that a variant told; by table the rows that only it or only the database has.

    Nothing is a dead letter.
    """
    prefix = prefix_of(server, variant)
    extra = {
        "topics": ",".join(topics_of(server, variant)),
        # Columns of `renames` get other names, which only schema changes tell.
        "debezium.sink.iceberg.schema-change-topics": prefix,
        "debezium.sink.iceberg.upsert-keep-deletes": str(deletes == "soft").lower(),
    }
    extra |= {"truncate.enabled": "true"} if deletes == "hard" else {}
    extra |= _avro(registry.url) if variant == "avro" else {}
    space = make_workspace(f"{prefix}_{deletes}", extra)
    run = space.run()
    assert run.code == 0, run.text[-6000:]
    assert not run.total("dead_letters"), run.text[-6000:]
    held = lake(space)
    assert held.names() == {f"{prefix}_{DATABASE}_{table}" for table in TABLES}
    different = {}
    for table in TABLES:
        columns = [name for name in server.columns(table) if variant != "plain" or name not in UNTOLD]
        found = [row for row in held.rows(f"{prefix}_{DATABASE}_{table}") if row.get("__deleted") != "true"]
        if (table, deletes) == ("trunc_me", "soft"):
            found = [row for row in found if row["id"] > 3]
        shown = [{n: row_text(n, row[n]) for n in columns} for row in found]
        truth = lose_nulls(variant, table, read_truth(server, table, columns))
        different[table] = [row for row in shown if row not in truth] + [row for row in truth if row not in shown]
        if not different[table] and len(shown) != len(truth):
            different[table] = shown
    return {table: rows for table, rows in different.items() if rows}


def _avro(url: str) -> dict[str, str]:
    values = {"": "io.confluent.connect.avro.AvroConverter", ".schema.registry.url": url}
    return {f"{side}.converter{name}": value for side in ("key", "value") for name, value in values.items()}
