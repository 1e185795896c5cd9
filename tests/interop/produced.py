"""statements -> Iceberg tables of several kinds that hold every type the JDBC sink takes, changed round by round.

Spark SQL writes them copy-on-write, with position deletes and with deletion vectors; the table with a `time` column,
which Spark does not know, is written as our own sink does: with equality deletes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from attrs import frozen

from connector.iceberg.catalog.table import Table
from connector.iceberg.java import jvm
from tests.histories.source_tables import upsert
from tests.runs.sources import Row, SourceWorkspace

MERGE_ON_READ = ",".join(f"'write.{what}.mode'='merge-on-read'" for what in ("delete", "update", "merge"))
COLUMNS = (
    "id BIGINT NOT NULL, region STRING NOT NULL, flag BOOLEAN, n INT, big BIGINT, f FLOAT, d DOUBLE, txt STRING, "
    "born DATE, at TIMESTAMP_NTZ, zoned TIMESTAMP, amount DECIMAL(20,3), wide DECIMAL(38,10), raw BINARY, "
    "ints ARRAY<INT>, longs ARRAY<BIGINT>, doubles ARRAY<DOUBLE>, flags ARRAY<BOOLEAN>, texts ARRAY<STRING>"
)
POSTGRES_TYPES = {
    "id": "bigint",
    "region": "text",
    "flag": "boolean",
    "n": "integer",
    "big": "bigint",
    "f": "real",
    "d": "double precision",
    "txt": "text",
    "born": "date",
    "at": "timestamp(6) without time zone",
    "zoned": "timestamp(6) with time zone",
    "amount": "numeric(20,3)",
    "wide": "numeric(38,10)",
    "raw": "bytea",
    "ints": "integer[]",
    "longs": "bigint[]",
    "doubles": "double precision[]",
    "flags": "boolean[]",
    "texts": "text[]",
    "uid": "uuid",
    "uids": "uuid[]",
    "fix": "bytea",
    "note": "text",
}


def _uuid(number: str) -> str:
    """The text of a uuid for a number, in SQL."""
    return f"concat('00000000-0000-4000-8000-', lpad(lower(hex(({number}) * 1234567)), 12, '0'))"


def _some_rows(start: int, end: int, more: str = "", where: str = "") -> str:
    """Insert rows of these ids; no two of a table are alike."""
    return f"""
        INSERT INTO T.{{t}} SELECT id, concat('r', id % 3), id % 2 = 0, cast(id * 7 - 50 AS INT), id * -123456789012,
        cast(id / 3 AS FLOAT), id / 7D, concat('n', id, ' ü😀"\\\\ \\n'),
        date_from_unix_date(cast(id * 101 - 5000 AS INT)),
        cast(timestamp_micros(id * 1000001 - 50000000000) AS TIMESTAMP_NTZ), timestamp_micros(id * 10000000001 - 7),
        cast(id / 7 - 3 AS DECIMAL(20,3)), cast(1234567890123456.0123456789BD * (5 - id) AS DECIMAL(38,10)),
        unhex(hex(id)), array(cast(id AS INT), null), array(id, -id), array(id / 3D), array(true, null, false),
        array('a', '', null, '{{,"\\\\', 'ü'), {_uuid("id")}, array({_uuid("id + 1")}),
        cast(lpad(id, 4, '0') AS BINARY){more}
        FROM (SELECT id FROM range({start}, {end})) {where}
    """


BOUNDS = (
    "INSERT INTO T.{t} VALUES (9223372036854775807, '', true, 2147483647, 9223372036854775807, "
    "float('3.4028235e38'), 1.7976931348623157e308D, '', date'9999-12-31', timestamp_ntz'9999-12-31 23:59:59.999999', "
    "timestamp'9999-12-31 23:59:59.999999Z', 99999999999999999.999, 9999999999999999999999999999.9999999999BD, X'', "
    "array(), array(), array(), array(), array(), 'ffffffff-ffff-4fff-bfff-ffffffffffff', array(), X'00FF00FF'), "
    "(-9223372036854775808, 'ß', false, -2147483648, -9223372036854775808, float('1.4e-45'), 4.9e-324D, ' ', "
    "date'0001-01-01', timestamp_ntz'0001-01-01 00:00:00', timestamp'0001-01-01 00:00:00Z', -99999999999999999.999, "
    "-9999999999999999999999999999.9999999999BD, X'00', array(-2147483648, 2147483647), "
    "array(-9223372036854775808, 9223372036854775807), array(1e308D, -4.9e-324D), array(false), array(' '), "
    "'00000000-0000-0000-0000-000000000000', array('ffffffff-ffff-4fff-bfff-ffffffffffff', null), X'FFFFFFFF')"
)
NULLS = "INSERT INTO T.{t} (id, region) VALUES (90, 'r0'), (91, 'r1'), (92, 'r1')"
FIRST = (_some_rows(0, 40), BOUNDS, NULLS)
"""What the full read finds."""
SECOND = (
    _some_rows(100, 120),
    "UPDATE T.{t} SET txt = concat(txt, '!'), amount = -amount, ints = array(1, 2), raw = null, uid = null "
    "WHERE id % 10 = 3",
    # Changes of key: to a new one, and two rows that swap theirs.
    "UPDATE T.{t} SET id = id + 1000 WHERE id % 10 = 4",
    "UPDATE T.{t} SET id = 3 - id WHERE id IN (1, 2)",
    # The rows change their partition, and their key where the region is of it.
    "UPDATE T.{t} SET region = 'moved' WHERE id % 10 = 5",
    "DELETE FROM T.{t} WHERE id % 10 = 6",
    # Two of them come again.
    _some_rows(16, 27, where="WHERE id % 10 = 6"),
    "MERGE INTO T.{t} t USING (SELECT explode(array(8, 18, 28, 200)) AS id) s ON t.id = s.id "
    "WHEN MATCHED AND s.id = 8 THEN DELETE WHEN MATCHED THEN UPDATE SET d = null, zoned = null, uids = array() "
    "WHEN NOT MATCHED THEN INSERT (id, region, txt) VALUES (s.id, 'merged', 'new')",
)
THIRD = (
    "ALTER TABLE T.{t} ADD COLUMN note STRING",
    "UPDATE T.{t} SET note = concat('of ', id) WHERE id % 7 = 0",
    "DELETE FROM T.{t} WHERE id = 7",
    _some_rows(7, 8, ", 'again'"),
    "DELETE FROM T.{t} WHERE id = 7",
    "INSERT INTO T.{t} (id, region, note) VALUES (7, 'r9', 'for the third time')",
    "DELETE FROM T.{t} WHERE id > 1000000000",
    # All that a partition holds.
    "DELETE FROM T.{t} WHERE region = 'r1'",
)
ROUNDS = (FIRST, SECOND, THIRD)


@frozen
class Kind:
    """A kind of table: its SQL properties, partitions, identifier columns, and what its deletes add to a snapshot."""

    properties: str
    deletes: str
    partitions: str = ""
    keys: tuple[str, ...] = ("id",)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the record key, in PostgreSQL too."""
        return self.keys or ("_row_id",)


KINDS = {
    "cow": Kind("'format-version'='2'", "deleted-data-files", "PARTITIONED BY (region)"),
    "mor": Kind(f"'format-version'='2',{MERGE_ON_READ}", "added-position-deletes"),
    "vectors": Kind(
        f"'format-version'='3',{MERGE_ON_READ}", "added-dvs", "PARTITIONED BY (bucket(2, id))", ("id", "region")
    ),
    # No identifier columns: the rows' own ids are the key.
    "rowids": Kind("'format-version'='3'", "deleted-data-files", keys=()),
}


def create(source: SourceWorkspace, table: str, kind: Kind) -> None:
    """Make a table of Spark's types, and of uuid and fixed, which Spark's SQL has no names for."""
    source.sql(f"CREATE TABLE T.{table} ({COLUMNS}) USING iceberg {kind.partitions} TBLPROPERTIES ({kind.properties})")
    types = jvm(source.spark).org.apache.iceberg.types.Types
    uuid = types.UUIDType.get()
    update = source.lake().java(table, "db").updateSchema()
    update.addColumn("uid", uuid).addColumn("uids", types.ListType.ofOptional(1000, uuid))
    update.addColumn("fix", types.FixedType.ofLength(4)).commit()
    if kind.keys:
        source.identify(table, *kind.keys)


def change(source: SourceWorkspace, table: str, round_: int) -> None:
    """Take a table of Spark's through one round of changes."""
    source.sql(*(statement.replace("{t}", table) for statement in ROUNDS[round_]))


TIMED = "timed"
"""The table that Spark cannot read; its kind is the one that our own sink writes."""
TIMED_TYPES = {
    "id": "uuid",
    "wake": "time(6) without time zone",
    "at": "timestamp(6) without time zone",
    "zoned": "timestamp(6) with time zone",
    "exact": "timestamp(6) without time zone",
    "exact_zoned": "timestamp(6) with time zone",
    "born": "date",
    "amount": "numeric(9,2)",
}
_TIMED_COLUMNS = {
    "id": "uuid",
    "wake": "time",
    "at": "timestamp",
    "zoned": "timestamptz",
    # Whole microseconds, as PostgreSQL has no more.
    "exact": "timestamp_ns",
    "exact_zoned": "timestamptz_ns",
    "born": "date",
    "amount": "decimal(9, 2)",
}


def create_timed(source: SourceWorkspace) -> None:
    """Make the table that Spark cannot read, keyed by a uuid."""
    fields = [
        {"id": place, "name": name, "required": name == "id", "type": kind}
        for place, (name, kind) in enumerate(_TIMED_COLUMNS.items(), 1)
    ]
    schema = {"type": "struct", "schema-id": 0, "identifier-field-ids": [1], "fields": fields}
    iceberg = jvm(source.spark).org.apache.iceberg
    catalog = iceberg.spark.Spark3Util.loadIcebergCatalog(source.spark._jsparkSession, source.name)
    name = iceberg.catalog.TableIdentifier.parse(f"db.{TIMED}")
    spec, properties = iceberg.PartitionSpec.unpartitioned(), {"format-version": "3"}
    catalog.createTable(name, iceberg.SchemaParser.fromJson(json.dumps(schema)), spec, properties)


def change_timed(source: SourceWorkspace, round_: int) -> None:
    """Take that table through one round, a snapshot for each upsert, as our sink makes them."""
    table = Table(source.spark, f"db.{TIMED}", source.lake().java(TIMED, "db"), {})
    for rows, deleted in _timed_rounds()[round_]:
        upsert(table, rows, deleted)
        table.refresh()


def _timed_rounds() -> Sequence[Sequence[tuple[list[Row], list[Row]]]]:
    first = [_timed(n, time(n, n, n, n * 1001)) for n in range(12)]
    bounds = [_timed(20, time.max), _timed(21, time.min), _timed(22, None)]
    return (
        [([*first, *bounds], [])],
        [
            ([_timed(n, time(23, n)) for n in (1, 2)], []),
            # A change of key: one goes, another comes, in one snapshot.
            ([_timed(103, time(3, 3))], [_timed(3, None)]),
            ([], [_timed(4, None), _timed(5, None), _timed(20, None)]),
            ([_timed(5, time(5, 5, 5))], []),
        ],
        [([], [_timed(5, None)]), ([_timed(5, time(0, 0, 0, 1)), _timed(30, None)], [_timed(6, None)])],
    )


def _timed(number: int, wake: time | None) -> Row:
    second = number % 60
    row: dict[str, Any] = {"id": UUID(int=number << 64 | 5).bytes, "wake": wake, "at": None, "zoned": None}
    row |= {"born": None, "amount": None, "exact": None, "exact_zoned": None}
    if wake is None:
        return row
    return row | {
        "at": datetime(1969, 12, 31, 23, 59, second, 999999),
        "zoned": datetime(2024, 2, 29, 1, 2, second, 1, tzinfo=UTC),
        "exact": datetime(2024, 2, 29, 23, 59, second, 123456),
        "exact_zoned": datetime(1969, 12, 31, 23, 59, second, 999999, tzinfo=UTC),
        "born": date(1970 + number, 1, 1),
        "amount": Decimal(number * 100 - 250) / 100,
    }
