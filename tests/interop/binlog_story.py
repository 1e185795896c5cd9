"""statements -> a story that a real Debezium tells of a MariaDB or MySQL: types, keys, DDL, truncates, TIME, locks.

`setup` stands before the connectors start, `change_during_snapshot` comes while each reads `busy`, `CHANGES` while they
stream, `wait_for_lock` and `request_snapshot` after that; the last row of `done` says that all came.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tests.harness.waiting import wait_until
from tests.interop.binlog_server import DATABASE, BinlogServer

LAST = 99
TABLES = ("types", "customers", "evolve", "trunc_me", "nokey", "renames", "busy", "done")
BUSY_ROWS = 24
SLOW_BUSY = f"SELECT * FROM {DATABASE}.busy WHERE SLEEP(0.1) = 0"
"""How a snapshot reads `busy`: so slowly that there is time to write to it."""
_WAIT_S = 60.0

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
}
# MySQL keeps a document, not its text (`jn`); only MariaDB has UUIDs, and only MySQL here vectors.
_NAMES = {"mariadb": {}, "mysql": {"js": "jn"}}
_LAST_COLUMN = {"mariadb": ("uu", "UUID"), "mysql": ("ve", "VECTOR(3)")}
_LAST_VALUES = {
    "mariadb": ("'00000000-0000-0000-0000-00000000000f'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "UUID()", "NULL"),
    "mysql": ("TO_VECTOR('[1, 2.5, -3]')", "TO_VECTOR('[0, 0, 0]')", "TO_VECTOR('[1e30, -1e-30, 0.1]')", "NULL"),
}
_VALUES = (
    # Usual values, the least, the greatest, nulls.
    "1, -5, 5, -5, 5, 5, 1234.56, 1.5, 1.5, 0.1, 1, 1, b'101', 'abc', 'ü€😀', 'text', 'ab', 'blob', 'big one', 'a,c', "
    "'{\"a\": [1, 2.50]}', '2024-02-29', '2024-02-29 12:34:56', '2024-02-29 12:34:56.123456', "
    "'2024-02-29 12:34:56', '2024-02-29 12:34:56.123456', '12:34:56', '12:34:56.789', '12:34:56.789012', 2024, "
    "ST_GeomFromText('POINT(1 2)')",
    "2, -128, 0, -8388608, 0, 0, -99999999.99, -99999999999999999999999999999999999.999999999999999999999999999999, "
    "-1e30, -1e300, 0, 0, b'0', '', '', '', '', '', 'small', '', '[]', '1000-01-01', '1000-01-01 00:00:00', "
    "'1000-01-01 00:00:00.000000', '1970-01-01 00:00:01', '1970-01-01 00:00:01.000001', '-838:59:59', "
    "'-838:59:59.000', '-00:00:00.000001', 1901, ST_GeomFromText('POINT(-1.5 0)')",
    "3, 127, 65535, 8388607, 4294967295, 18446744073709551615, 99999999.99, "
    "99999999999999999999999999999999999.999999999999999999999999999999, 1e30, 1e300, 1, 1, b'111111111111', 'abcde', "
    "REPEAT('x', 40), REPEAT('y', 3000), X'00FF00FF', X'00FF', 'a,b', 'a,b,c', 'null', '9999-12-31', "
    "'9999-12-31 23:59:59', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07', '2038-01-19 03:14:07.999999', "
    "'838:59:59', '838:59:58.999', '24:00:00.000000', 2155, ST_GeomFromText('POINT(3 4)')",
    "4" + ", NULL" * len(_COLUMNS),
)
_TABLES = (
    "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(50) NOT NULL, note TEXT);\n"
    "INSERT INTO customers VALUES (1, 'Anne', 'a'), (2, 'Bob', NULL), (3, 'Cid', 'c'), (4, 'Dora', 'd');\n"
    "CREATE TABLE evolve (id INT PRIMARY KEY, a INT, gone INT);\n"
    "INSERT INTO evolve VALUES (1, 1, 1), (2, 2, 2);\n"
    "CREATE TABLE trunc_me (id INT PRIMARY KEY, v INT);\nINSERT INTO trunc_me VALUES (1, 1), (2, 2);\n"
    "CREATE TABLE nokey (v INT, w VARCHAR(9));\nINSERT INTO nokey VALUES (1, 'a'), (1, 'a');\n"
    "CREATE TABLE renames (id INT PRIMARY KEY, was VARCHAR(9), gone INT);\n"
    "INSERT INTO renames VALUES (1, 'a', 1), (2, 'b', 2);\n"
    "CREATE TABLE busy (id INT PRIMARY KEY, v VARCHAR(40));\n"
    f"INSERT INTO busy VALUES {', '.join(f'({n}, NULL)' for n in range(1, BUSY_ROWS + 1))};\n"
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
    "UPDATE renames SET was = 'aa' WHERE id = 1; ALTER TABLE renames RENAME COLUMN was TO is_now;\n"
    "INSERT INTO renames VALUES (3, 'c', 3);\n"
    "ALTER TABLE renames CHANGE is_now finally_is VARCHAR(20), DROP COLUMN gone;\n"
    "UPDATE renames SET finally_is = 'bb' WHERE id = 2;\n"
)


def setup(server: BinlogServer, variants: Sequence[str]) -> str:
    """Statements that make the tables, and for each variant one for its signals."""
    names, (last, kind) = _NAMES[server.name], _LAST_COLUMN[server.name]
    columns = {names.get(name, name): of for name, of in _COLUMNS.items()} | {last: kind}
    values = [f"{row}, {own}" for row, own in zip(_VALUES, _LAST_VALUES[server.name], strict=True)]
    signals = (
        f"CREATE TABLE {signals_table(v)} (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32), data TEXT);\n"
        for v in variants
    )
    return (
        f"CREATE TABLE types (id INT PRIMARY KEY, {', '.join(f'{n} {of}' for n, of in columns.items())});\n"
        f"INSERT INTO types VALUES {', '.join(f'({row})' for row in values)};\n{_TABLES}{''.join(signals)}"
    )


def signals_table(variant: str) -> str:
    """The table by which a variant's connector is told what to do."""
    return f"signals_{variant}"


def change_during_snapshot(server: BinlogServer, number: int) -> None:
    """Write to `busy` while a connector reads it; `number` tells the connectors apart."""
    others = "SELECT info FROM information_schema.processlist WHERE id <> CONNECTION_ID();"
    wait_until(lambda: "SLEEP" in server.run(others), _WAIT_S)
    server.run(
        f"UPDATE busy SET v = 'during {number}' WHERE id <= 3; INSERT INTO busy VALUES ({100 + number}, 'new');\n"
        f"DELETE FROM busy WHERE id = {20 + number}; INSERT INTO busy VALUES ({20 + number}, 'again {number}');\n"
        f"UPDATE busy SET id = {200 + number} WHERE id = {10 + number};\n"
    )


def wait_for_lock(server: BinlogServer) -> None:
    """Have one statement begin, and wait, before another that is committed before it."""
    held = (
        "START TRANSACTION; UPDATE busy SET v = 'first' WHERE id = 5; DO SLEEP(3);\n"
        "UPDATE busy SET v = 'second' WHERE id IN (5, 6); COMMIT;\n"
    )
    holder = threading.Thread(target=server.run, args=(held,))
    holder.start()
    wait_until(lambda: "DO SLEEP" in server.run("SHOW PROCESSLIST;"), _WAIT_S)
    server.run("UPDATE busy SET v = 'waited' WHERE id = 5;\n")
    holder.join()


def request_snapshot(server: BinlogServer, variant: str) -> None:
    """Ask a variant's connector for `busy` once more, and write to it meanwhile."""
    data = f'{{"type": "incremental", "data-collections": ["{DATABASE}.busy"]}}'
    table = signals_table(variant)
    server.run(f"INSERT INTO {table} VALUES ('{variant}', 'execute-snapshot', '{data}');\n")
    server.run("UPDATE busy SET v = CONCAT(v, '!') WHERE id IN (2, 200); DELETE FROM busy WHERE id = 4;\n")
    server.run("INSERT INTO busy VALUES (4, 'back');\n")
