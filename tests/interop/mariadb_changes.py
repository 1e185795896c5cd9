"""statements and connectors -> a story that a real Debezium tells of a MariaDB: types, keys, DDL, truncates, TIME.

`SETUP` stands before the connectors start, `CHANGES` come while they stream; the last row of `done` says that all came.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from connector.demo.servers.ports import LOOPBACK
from tests.interop.mariadb import DATABASE, PASSWORD, USER, MariaDb

CLASS = "io.debezium.connector.mariadb.MariaDbConnector"
LAST = 99
TABLES = ("types", "customers", "evolve", "trunc_me", "nokey", "done")

_COLUMNS = {
    "ti": "TINYINT",
    "su": "SMALLINT UNSIGNED",
    "mi": "MEDIUMINT",
    "iu": "INT UNSIGNED",
    "bu": "BIGINT UNSIGNED",
    "de": "DECIMAL(10,2)",
    "dw": "DECIMAL(65,30)",
    "fl": "FLOAT",
    "do": "DOUBLE",
    "bo": "BOOLEAN",
    "b1": "BIT(1)",
    "bn": "BIT(12)",
    "ch": "CHAR(5)",
    "vc": "VARCHAR(40)",
    "tx": "LONGTEXT",
    "bi": "BINARY(4)",
    "bl": "BLOB",
    "en": "ENUM('small','big one','a,b')",
    "se": "SET('a','b','c')",
    "js": "JSON",
    "da": "DATE",
    "d0": "DATETIME",
    "d6": "DATETIME(6)",
    "s0": "TIMESTAMP NULL",
    "s6": "TIMESTAMP(6) NULL",
    "t0": "TIME",
    "t3": "TIME(3)",
    "t6": "TIME(6)",
    "ye": "YEAR",
    "po": "POINT",
    "uu": "UUID",
}
_VALUES = (
    # Usual values, the least, the greatest, nulls.
    "1, -5, 5, -5, 5, 5, 1234.56, 1.5, 1.5, 0.1, 1, 1, b'101', 'abc', 'ü€😀', 'text', 'ab', 'blob', 'big one', 'a,c', "
    "'{\"a\": [1, 2.50]}', '2024-02-29', '2024-02-29 12:34:56', '2024-02-29 12:34:56.123456', "
    "'2024-02-29 12:34:56', '2024-02-29 12:34:56.123456', '12:34:56', '12:34:56.789', '12:34:56.789012', 2024, "
    "ST_GeomFromText('POINT(1 2)'), '00000000-0000-0000-0000-00000000000f'",
    "2, -128, 0, -8388608, 0, 0, -99999999.99, -99999999999999999999999999999999999.999999999999999999999999999999, "
    "-1e30, -1e300, 0, 0, b'0', '', '', '', '', '', 'small', '', '[]', '1000-01-01', '1000-01-01 00:00:00', "
    "'1000-01-01 00:00:00.000000', '1970-01-01 00:00:01', '1970-01-01 00:00:01.000001', '-838:59:59', "
    "'-838:59:59.000', '-00:00:00.000001', 1901, ST_GeomFromText('POINT(-1.5 0)'), "
    "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    "3, 127, 65535, 8388607, 4294967295, 18446744073709551615, 99999999.99, "
    "99999999999999999999999999999999999.999999999999999999999999999999, 1e30, 1e300, 1, 1, b'111111111111', 'abcde', "
    "REPEAT('x', 40), REPEAT('y', 3000), X'00FF00FF', X'00FF', 'a,b', 'a,b,c', 'null', '9999-12-31', "
    "'9999-12-31 23:59:59', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07', '2038-01-19 03:14:07.999999', "
    "'838:59:59', '838:59:58.999', '24:00:00.000000', 2155, ST_GeomFromText('POINT(3 4)'), UUID()",
    "4" + ", NULL" * len(_COLUMNS),
)
_INSERTS = "".join(f"INSERT INTO types VALUES ({values});\n" for values in _VALUES)

SETUP = (
    f"CREATE TABLE types (id INT PRIMARY KEY, {', '.join(f'{n} {k}' for n, k in _COLUMNS.items())});\n{_INSERTS}"
    "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(50) NOT NULL, note TEXT);\n"
    "INSERT INTO customers VALUES (1, 'Anne', 'a'), (2, 'Bob', NULL), (3, 'Cid', 'c'), (4, 'Dora', 'd');\n"
    "CREATE TABLE evolve (id INT PRIMARY KEY, a INT, gone INT);\n"
    "INSERT INTO evolve VALUES (1, 1, 1), (2, 2, 2);\n"
    "CREATE TABLE trunc_me (id INT PRIMARY KEY, v INT);\nINSERT INTO trunc_me VALUES (1, 1), (2, 2);\n"
    "CREATE TABLE nokey (v INT, w VARCHAR(9));\nINSERT INTO nokey VALUES (1, 'a'), (1, 'a');\n"
    "CREATE TABLE done (id INT PRIMARY KEY);\nINSERT INTO done VALUES (0);\n"
)
CHANGES = (
    "UPDATE types SET t0 = '-01:00:00', dw = 0.000000000000000000000000000001, bu = 9223372036854775808 WHERE id = 1;\n"
    "INSERT INTO types (id, t0, t3, t6) VALUES (5, '838:59:59', '-838:59:59', '100:00:00.5');\n"
    "DELETE FROM types WHERE id = 4;\n"
    # A key changed, there and back; a swap; delete and insert of one key in one transaction.
    "UPDATE customers SET id = 10 WHERE id = 1;\n"
    "START TRANSACTION; UPDATE customers SET id = 20 WHERE id = 2; UPDATE customers SET id = 2 WHERE id = 20; COMMIT;\n"
    "START TRANSACTION; DELETE FROM customers WHERE id = 3; INSERT INTO customers VALUES (3, 'Cid again', NULL); "
    "UPDATE customers SET note = 'late' WHERE id = 3; COMMIT;\n"
    "START TRANSACTION; UPDATE customers SET id = 30 WHERE id = 3; UPDATE customers SET id = 3 WHERE id = 4; "
    "UPDATE customers SET id = 4 WHERE id = 30; COMMIT;\n"
    "START TRANSACTION; INSERT INTO customers VALUES (7, 'undone', NULL); ROLLBACK;\n"
    # The clock runs back.
    "SET timestamp = 1000000000; UPDATE customers SET note = 'from long ago' WHERE id = 2; SET timestamp = DEFAULT;\n"
    "ALTER TABLE evolve ADD COLUMN b VARCHAR(9) DEFAULT 'new', DROP COLUMN gone;\n"
    "INSERT INTO evolve (id, a) VALUES (3, 3); UPDATE evolve SET b = 'set' WHERE id = 1;\n"
    "UPDATE evolve SET a = 22 WHERE id = 2;\n"
    "ALTER TABLE evolve MODIFY a BIGINT; INSERT INTO evolve VALUES (4, 5000000000, NULL);\n"
    "INSERT INTO trunc_me VALUES (3, 3); TRUNCATE TABLE trunc_me; INSERT INTO trunc_me VALUES (4, 4);\n"
    "INSERT INTO nokey VALUES (2, 'b');\n"
    f"INSERT INTO done VALUES ({LAST});\n"
)

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_UNWRAP = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
    "transforms.unwrap.add.fields": "op,table,source.ts_ns,db,source.gtid,source.file,source.pos,source.server_id",
}
SIDE_TOPICS: Mapping[str, tuple[str, ...]] = {"plain": ("plain", "plain.transaction")}
"""Topics of variants that hold no rows: DDL, and transactions."""

VARIANTS: Mapping[str, Mapping[str, str]] = {
    "schema": {"bigint.unsigned.handling.mode": "precise"},
    "unwrap": {**_UNWRAP, "bigint.unsigned.handling.mode": "precise"},
    "plain": {
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "include.schema.changes": "true",
        "provide.transaction.metadata": "true",
    },
}


def connector(name: str, server: MariaDb, folder: Path, bootstrap_servers: str) -> dict[str, str]:
    """The configuration of one variant's connector; its topics begin with its name."""
    history = folder / f"{name}-history"
    converters = {
        f"{side}.converter{key}": value
        for side in ("key", "value")
        for key, value in (("", _JSON), (".schemas.enable", "true"), (".replace.null.with.default", "false"))
    }
    return {
        "connector.class": CLASS,
        "tasks.max": "1",
        "database.hostname": LOOPBACK,
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": PASSWORD,
        "database.server.id": str(5000 + list(VARIANTS).index(name)),
        "database.include.list": DATABASE,
        "topic.prefix": name,
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(history),
        "skipped.operations": "none",
        "provide.transaction.metadata": "false",
        "include.schema.changes": "false",
        "header.converter": "org.apache.kafka.connect.storage.StringConverter",
        **converters,
        **VARIANTS[name],
    }
