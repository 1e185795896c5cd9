"""The load of `make chaos` and its comparison: every kind of statement runs, and a planted difference is found."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from connector.demo.servers.ports import LOOPBACK, free_ports
from tests.chaos.clock import Clock, build_library
from tests.chaos.comparison import Difference, compare_events, compare_marked, compare_rows
from tests.chaos.load import KEYS, Load
from tests.chaos.reading import split_marked
from tests.chaos.sent import identify, read_image, sent_keys
from tests.chaos.tables import ORDERS, PEOPLE, TABLES, Table
from tests.servers.relay import Relay

TRANSACTIONS = 600
Rows = list[dict[str, Any]]


def lived(seed: int, transactions: int = TRANSACTIONS) -> dict[str, Rows]:
    """The rows of a database after the load of a seed."""
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.row_factory = sqlite3.Row
    for table in TABLES:
        database.execute(table.create)
    load = Load(seed)
    for _ in range(transactions):
        database.executescript(load.transaction())
    return {table.name: list(map(dict, database.execute(f"SELECT * FROM {table.name}"))) for table in TABLES}


@pytest.fixture(scope="module")
def rows() -> dict[str, Rows]:
    """One load that several tests look at."""
    return lived(7)


def test_a_seed_repeats_its_load(rows: dict[str, Rows]) -> None:
    """The same seed leaves the same rows, another one others."""
    assert lived(7) == rows
    assert lived(8) != rows


def test_the_load_makes_rows_of_all_kinds(rows: dict[str, Rows]) -> None:
    """Rows with nulls, with large values and with small ones are left, of a part of all keys."""
    people = rows["people"]
    assert 30 < sum(row["id"] < KEYS for row in people) < KEYS
    assert any(row["id"] >= KEYS for row in people)
    assert any(row["big"] and len(row["big"]) > 2_000 for row in people)
    assert any(row["amount"] is None for row in people)
    assert {row["region"] for row in rows["orders"]} == {"north", "south", "east"}


def test_rare_keys_have_one_change_or_two() -> None:
    """What goes wrong with a key that is not changed again stays to be seen: sweeps leave such keys out."""
    load = Load(3)
    statements = [one for _ in range(TRANSACTIONS) for one in load.transaction().splitlines()]
    keys = re.compile(r"(?:id = |VALUES \((?:'\w+', )?)(\d+)")
    named = Counter(key for one in statements for key in set(map(int, keys.findall(one))))
    rare = {key: count for key, count in named.items() if key >= KEYS}
    assert len(rare) > TRANSACTIONS / 10
    assert set(rare.values()) == {1, 2}
    assert all(f"id < {KEYS} AND" in one for one in statements if "id % " in one)


def test_the_load_has_all_statements() -> None:
    """Within some hundred transactions each kind of statement comes, and some are rolled back."""
    load = Load(1)
    text = "".join(load.transaction() for _ in range(TRANSACTIONS))
    for words in ("INSERT INTO people", "INSERT INTO orders", "UPDATE people SET id", "UPDATE orders SET region"):
        assert words in text
    for words in ("DELETE FROM people", "DELETE FROM orders", "UPDATE people SET big", "ROLLBACK", "id % "):
        assert words in text


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_planted_difference_is_found(rows: dict[str, Rows], table: Table) -> None:
    """A row that is missing, left, doubled or stale is told by its key; equal rows are no difference."""
    good = rows[table.name]
    first, second, third = good[0], good[1], good[2]
    stale = {**third, "n": 123_456}
    spare = {**first, "id": 99_999}
    assert compare_rows("t", table, good, list(reversed(good))) is None
    found = compare_rows("t", table, good, [second, second, stale, *good[3:], spare])
    assert found == Difference(
        "t",
        missing=(table.key_of(first),),
        extra=(table.key_of(spare),),
        repeated=(table.key_of(second),),
        changed=((table.key_of(third), ("n",)),),
    )
    assert "/".join(table.key_of(third)) in str(found)
    assert "123456" not in str(found), "a difference must name no values"


def test_a_deleted_row_that_is_not_kept_is_found(rows: dict[str, Rows]) -> None:
    """Where deletes keep rows each key that was ever sent has one, which lives or is marked; no key has both."""
    every = [{**row, "__deleted": str(at % 3 == 0).lower()} for at, row in enumerate(rows["people"])]
    live, marked = split_marked(every)
    assert len(marked) == len(every[::3])
    sent = Counter(identify(PEOPLE, row, at, "u") for at, row in enumerate(every))
    keys = sent_keys(sent, PEOPLE)
    assert compare_marked("t", PEOPLE, keys, live, marked) is None
    lost, doubled = PEOPLE.key_of(marked[0]), PEOPLE.key_of(live[0])
    found = compare_marked("t", PEOPLE, keys, [*live, live[0]], marked[1:])
    assert found == Difference("t, with what is deleted", missing=(lost,), repeated=(doubled,))


def test_an_event_whose_values_are_others_is_another() -> None:
    """What is appended is an event's row with all of its values; of a delete only the key is told."""
    sent = {"id": 1, "name": "a", "n": None, "amount": "ANY=", "at": "2026-03-04T05:06:07.000089Z", "big": "b"}
    image = read_image(PEOPLE, sent)
    read = {"id": 1, "name": "a", "n": None, "amount": Decimal("2.14"), "big": "b"}
    read["at"] = datetime(2026, 3, 4, 5, 6, 7, 89, UTC)
    assert identify(PEOPLE, image, 7, "u") == identify(PEOPLE, read, 7, "u")
    assert identify(PEOPLE, image, 7, "u") != identify(PEOPLE, {**read, "name": "old"}, 7, "u")
    assert identify(PEOPLE, {"id": 1}, 7, "d") == identify(PEOPLE, read, 7, "d")
    assert "2.14" not in str(identify(PEOPLE, read, 7, "u"))


def test_values_compare_whatever_program_read_them() -> None:
    """Numbers, decimals and times are the same as texts of JSON and as values of Arrow."""
    read = {"id": 1, "name": "a", "n": None, "amount": Decimal("1.50"), "big": "b"}
    read["at"] = datetime(2026, 3, 4, 5, 6, 7, 89, UTC)
    told = {"id": 1, "name": "a", "n": None, "amount": Decimal("1.5"), "big": "b"}
    told["at"] = "2026-03-04T06:06:07.000089+01:00"
    assert PEOPLE.values_of(read) == PEOPLE.values_of(told)
    assert ORDERS.key_of({"region": "north", "id": 5}) == ("north", "5")


def test_an_event_that_was_applied_twice_is_found() -> None:
    """Events of an append-only table are counted: one that is missing, or there once more than sent, is told."""
    sent = Counter({("people", "1", "100", "c"): 2, ("people", "2", "200", "u"): 1})
    assert compare_events("log", sent, Counter(sent)) is None
    found = compare_events("log", sent, Counter({("people", "1", "100", "c"): 3}))
    assert found == Difference("log", missing=(("people", "2", "200", "u"),), extra=(("people", "1", "100", "c"),))


def test_an_answer_is_lost_after_its_request_has_arrived() -> None:
    """The relay passes the chosen request on, and ends the connection instead of its answer; the next is answered."""
    heard: list[bytes] = []
    with socket.create_server((LOOPBACK, 0)) as server, Relay(server.getsockname()[1]) as relay:
        threading.Thread(target=_answer, args=(server, heard), daemon=True).start()
        assert _ask(relay.port, b"read") == b"done"
        relay.lose_answer(b"commit")
        assert _ask(relay.port, b"read") == b"done"
        assert _ask(relay.port, b"commit") == b""
        assert _ask(relay.port, b"commit") == b"done"
        assert relay.lost_answers == 1
    assert heard == [b"read", b"read", b"commit", b"commit"]


def test_a_relay_serves_again_once_its_server_is_back() -> None:
    """While nobody listens behind a relay its clients' connections end; those that come later find the server."""
    (port,) = free_ports(1)
    with Relay(port) as relay:
        assert _ask(relay.port, b"read") == b""
        with socket.create_server((LOOPBACK, port)) as server:
            threading.Thread(target=_answer, args=(server, []), daemon=True).start()
            assert _ask(relay.port, b"read") == b"done"


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_step_of_a_clock_is_seen_by_a_process_that_runs(tmp_path: Path) -> None:
    """Its wall clock is off at once, and right at once; what counts time that passes never is."""
    clock = Clock(tmp_path / "clock", build_library(tmp_path))
    program = "import sys, time\nfor _ in sys.stdin: print(time.time_ns(), time.monotonic_ns(), flush=True)"
    command, environ = (sys.executable, "-I", "-S", "-c", program), {**os.environ, **clock.environ}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for shift in (0, 50, -3600, 0):
            clock.shift(shift)
            process.stdin.write("now\n")
            process.stdin.flush()
            wall, passed = map(int, process.stdout.readline().split())
            # The machine may be busy: nobody asks for less than a few seconds.
            assert abs(wall - time.time_ns() - shift * 10**9) < 10 * 10**9
            assert abs(passed - time.monotonic_ns()) < 10 * 10**9
        process.stdin.close()


def _answer(server: socket.socket, heard: list[bytes]) -> None:
    with suppress(OSError):
        while True:
            with server.accept()[0] as client:
                heard.append(client.recv(100))
                client.sendall(b"done")


def _ask(port: int, request: bytes) -> bytes:
    with suppress(OSError), socket.create_connection((LOOPBACK, port), 10) as client:
        client.sendall(request)
        return client.recv(100)
    return b""
