"""Events of every connector -> places in its log: numbers that rise with it, comparable only where they may be."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from connector.sink.model.event_age import mark_above, mark_below
from serde.events.changes import Changes, slice_changes, take_changes
from serde.events.flattened_rows import read_row_position
from serde.events.positions.log_positions import NO_VALUE
from serde.events.unwrapping import UnwrapSettings, extract_changes
from serde.formats import make_deserializer

UNWRAP = UnwrapSettings(("op",))


def _changes(*sources: dict[str, Any], order: int | None = None) -> Changes:
    """Envelopes with these sources."""
    told = {"id": "1", "total_order": order, "data_collection_order": 1} if order is not None else None
    values = [{"before": None, "after": {"id": 1}, "source": s, "op": "u", "transaction": told} for s in sources]
    return _made(values)


def _made(values: list[dict[str, Any]]) -> Changes:
    raw = pa.array([json.dumps(value).encode() for value in values], pa.binary())
    (block,) = make_deserializer("auto", UNWRAP.wanted).decode(raw, "VALUE_CONVERTER").blocks
    made, faults, _ = extract_changes(block, UNWRAP)
    assert made is not None and not faults
    return made


def _mysql(file: str = "bin.log.000009", pos: int = 4, row: int = 0, server: int = 1) -> dict[str, Any]:
    return {"name": "s", "db": "d", "table": "t", "server_id": server, "file": file, "pos": pos, "row": row}


def _lsns(commit: str, change: str, serial: int | None = 1) -> dict[str, Any]:
    return {"name": "s", "commit_lsn": commit, "change_lsn": change, "event_serial_no": serial}


RISING: dict[str, list[dict[str, Any]]] = {
    "postgresql": [{"name": "s", "lsn": 9}, {"name": "s", "lsn": 10}],
    "mysql": [
        _mysql(),
        _mysql(pos=5),
        _mysql(file="bin.log.000010", pos=4),
        _mysql(file="bin.log.1000000", pos=4),
    ],
    "mariadb": [
        {**_mysql("bin.log.000900"), "gtid": "0-1-9"},
        {**_mysql("bin.log.000003"), "gtid": "0-1-10"},
        {**_mysql("bin.log.000002"), "gtid": "0-1-1000"},
    ],
    "sqlserver": [
        _lsns("00000027:00000ac0:0002", "00000027:00000ab0:0002"),
        _lsns("00000027:00000ac0:0003", "00000027:00000a00:0001"),
        _lsns("00000028:00000001:0001", "00000027:00000a00:0001"),
        _lsns("0000002a:00000001:0001", "00000027:00000a00:0001"),
    ],
    "db2": [
        _lsns("00000000:00000000:0000000000043e14", "00000000:00000000:0000000000043e00", None),
        _lsns("00000000:00000000:0000000000043e14", "00000000:00000000:0000000000043e01", None),
        _lsns("00000000:00000000:0000000000143e14", "00000000:00000000:0000000000043e00", None),
    ],
    "oracle": [
        {"name": "s", "commit_scn": "999", "scn": "98"},
        {"name": "s", "commit_scn": "999", "scn": "998"},
        {"name": "s", "commit_scn": "1000", "scn": "7"},
    ],
    "mongodb": [
        {"name": "s", "ts_ms": 1000, "ord": 2},
        {"name": "s", "ts_ms": 1000, "ord": 10},
        {"name": "s", "ts_ms": 2000, "ord": 1},
    ],
    "informix": [
        {"name": "s", "commit_lsn": "999", "change_lsn": "98"},
        {"name": "s", "commit_lsn": "627404540760620", "change_lsn": "627404540372400"},
        {"name": "s", "commit_lsn": "627404540760620", "change_lsn": "627404540485812"},
    ],
    "iceberg": [{"name": "s", "sequence_number": 9}, {"name": "s", "sequence_number": 10}],
}


@pytest.mark.parametrize("connector", RISING)
@pytest.mark.parametrize("flattened", [False, True])
def test_places_rise_with_the_log(connector: str, flattened: bool) -> None:
    """As envelopes, and as what add.fields made of them; numbers by their value, not as texts."""
    sources = RISING[connector]
    rows = [{"id": 1, "__op": "u", **{f"__source_{name}": v for name, v in source.items()}} for source in sources]
    made = _made(rows) if flattened else _changes(*sources)
    places = [tuple(place) for place in made.place[:, 1:].tolist()]
    assert places == sorted(set(places)) and all(place[0] != NO_VALUE for place in places)
    assert len(set(made.place[:, 0].tolist())) == 1


@pytest.mark.parametrize("connector", RISING)
def test_no_event_has_no_place(connector: str) -> None:
    """Rows of a table whose look-up found none are read as well."""
    sources = RISING[connector]
    rows = pa.Table.from_pylist([{f"__source_{n}": v for n, v in source.items()} for source in sources])
    row = rows.to_struct_array().combine_chunks().slice(0, 0)
    place, origin = read_row_position(row, "__")
    assert len(place) == len(origin) == 0


@pytest.mark.parametrize("server", ["x", 1.5, True, [1], {"a": 1}])
@pytest.mark.parametrize("flattened", [False, True])
def test_a_server_may_be_anything(server: Any, flattened: bool) -> None:
    """What is no number of a server ends no task."""
    source = {**_mysql(), "server_id": server}
    row = {"id": 1, "__op": "u", **{f"__source_{name}": value for name, value in source.items()}}
    assert (_made([row]) if flattened else _changes(source)).place[0, 1] != NO_VALUE


def test_files_of_no_server_are_no_log() -> None:
    """Those of another server could have the same names, alone and beside events that tell theirs."""
    nobodys = {**_mysql(), "server_id": None}
    assert _changes(nobodys).place[0, 1] == NO_VALUE
    assert (_changes(nobodys, _mysql()).place[:, 1] != NO_VALUE).tolist() == [False, True]


def test_places_of_one_lsn_rise_with_the_transaction() -> None:
    """What shares a position is told apart by its place in the transaction."""
    (one,), (other,) = (_changes({"name": "s", "lsn": 9}, order=order).place[:, 1:].tolist() for order in (1, 2))
    assert one < other


@pytest.mark.parametrize("source", [_mysql(), {"name": "s", "commit_scn": "9", "scn": "9"}])
def test_what_counts_anew_does_not_compare(source: dict[str, Any]) -> None:
    """MySQL's events of one compressed transaction share its position, Oracle's redo records may share their scn: each
    counts its rows from the beginning.
    """
    (one,), (other,) = (_changes({**source, "row": at, "ssn": at}).place.tolist() for at in (3, 1))
    assert one == other


def test_changes_of_one_transaction_of_sql_server_have_one_place() -> None:
    """They are read by statement: a later one may have the smaller change_lsn, and one after a restart fewer events."""
    commit = "00000027:00000ac0:0002"
    changes = ["00000027:00000ab0:0002", "00000027:00000aa0:0009", "00000027:00000ab0:0001"]
    made = _changes(*(_lsns(commit, change, serial) for serial, change in zip((2, 1, 9), changes, strict=True)))
    assert len({tuple(place) for place in made.place.tolist()}) == 1


def test_a_transaction_of_mariadb_that_is_sent_on_after_a_restart_keeps_its_place() -> None:
    """Until 3.7 the events that were not sent yet are counted from 1 then (debezium/dbz#633)."""
    one, other = (_changes({**_mysql(), "gtid": "0-1-9"}, order=order).place.tolist() for order in (100, 1))
    assert one == other


def test_redo_threads_do_not_compare() -> None:
    """Each thread of a RAC has commits of its own, and some versions tell the one before; most databases have one."""
    threads = (1, 2, None, 3)
    made = _changes(*({"name": "s", "commit_scn": "9", "scn": "8", "redo_thread": thread} for thread in threads))
    assert [name.strip(".") for name in made.origin.to_pylist()] == ["s", "s.. @2", "s", "s.. @3"]
    assert len(set(made.place[:, 0].tolist())) == 3


@pytest.mark.parametrize("flattened", [False, True])
def test_the_clock_of_a_node_is_no_place(flattened: bool) -> None:
    """MongoDB since 3.4: ts_ms is the wall clock of the node that wrote, ord counts within the cluster's second."""
    wall, cluster = 1_700_000_000_123, 1_700_000_000_000
    sources = [
        {"name": "s", "ts_ms": wall, "ord": 9, "wallTime": wall},
        {"name": "s", "ts_ms": cluster, "ord": 1, "wallTime": cluster},
        {"name": "s", "ts_ms": wall, "ord": 9, "wallTime": None},
        {"name": "s", "ts_ms": cluster, "ord": 9, "wallTime": None},
    ]
    rows = [{"id": 1, "__op": "u", **{f"__source_{name}": v for name, v in source.items()}} for source in sources]
    made = _made(rows) if flattened else _changes(*sources)
    assert (made.place[:, 1] == NO_VALUE).tolist() == [True, True, True, False]
    assert made.clock_dated.tolist() == [True, True, False, False]


def test_dates_of_sql_server_and_informix_do_not_rise_with_their_logs() -> None:
    """Those of beginnings of transactions, and of the connector's clock; Db2's are those of commits."""
    made = [_changes(*RISING[connector]).clock_dated for connector in ("sqlserver", "informix", "db2", "oracle")]
    assert [(bool(each.all()), bool(each.any())) for each in made] == [(True, True)] * 2 + [(False, False)] * 2


def test_servers_and_files_do_not_compare() -> None:
    """Another server, another series of files, another database: another source, with a name of its own."""
    others = (_mysql(), _mysql(server=2), _mysql(file="other.000009"), {**_mysql(), "db": "e"})
    made = _changes(*others)
    assert len(set(made.place[:, 0].tolist())) == 4
    assert made.origin.to_pylist() == ["s.d.t @1/bin.log", "s.d.t @2/bin.log", "s.d.t @1/other", "s.e.t @1/bin.log"]
    assert _changes(others[1]).place[0, 0] == made.place[1, 0], "the same in every block"


def test_a_transaction_keeps_its_number_in_every_log() -> None:
    """MariaDB's numbers compare within a domain and server; MySQL's stand beside the files, sets of them do not."""
    gtids = ["0-1-9", "0-2-9", "3-1-9", "8a94f357-aab4-11df-86ab-c80aa9429562:9", "0-1-9,0-2-3", "", None, "0-1-x"]
    made = _changes(*({**_mysql(), "gtid": gtid} for gtid in gtids))
    files = "s.d.t @1/bin.log"
    assert made.origin.to_pylist() == ["s.d.t @0-1", "s.d.t @0-2", "s.d.t @3-1", *([files] * 5)]
    assert made.place[:3, 1].tolist() == [9] * 3
    assert len(set(made.place[3:, 1].tolist())) == 1
    owners, numbers = made.place[3:, 2].tolist(), made.place[3:, 3].tolist()
    assert owners[0] < 0 and owners[1:] == [0] * 4 and numbers == [9, 0, 0, 0, 0]
    alone = _changes(*({**_mysql(), "gtid": gtid} for gtid in gtids[3:]))
    assert alone.place.tolist() == made.place[3:].tolist(), "the same in every block"
    (nowhere,) = _changes({"name": "s", "db": "d", "table": "t", "gtid": "0-1-9"}).origin.to_pylist()
    assert nowhere == "s.d.t @0-1"


@pytest.mark.parametrize("gtid", [1, 1.5, True, [1], {"a": 1}, ["0-1-2"]])
@pytest.mark.parametrize("flattened", [False, True])
def test_a_number_of_a_transaction_may_be_anything(gtid: Any, flattened: bool) -> None:
    """What is none ends no task, and leaves it to the files."""
    source = {**_mysql(), "gtid": gtid}
    row = {"id": 1, "__op": "u", **{f"__source_{name}": value for name, value in source.items()}}
    made = _made([row]) if flattened else _changes(source)
    assert (
        made.place.tolist()
        == (_made([{**row, "__source_gtid": None}]) if flattened else _changes(_mysql())).place.tolist()
    )


@pytest.mark.parametrize(
    "source",
    [
        {"lsn": None},
        {"file": "CommitLog-6-17.log", "pos": 3},
        {"file": "bin.000001", "pos": None},
        {"file": "bin.000001", "pos": 2**32},
        {"commit_lsn": "94491402412032", "change_lsn": None},
        {"commit_lsn": "0", "change_lsn": "0"},
        {"commit_lsn": "NULL", "change_lsn": "NULL"},
        {"commit_lsn": "0000002g:00000001:0001", "change_lsn": "00000027:00000a00:0001"},
        {"commit_lsn": "f0000027:00000001:0001", "change_lsn": "00000027:00000a00:0001"},
        {"commit_scn": "many", "scn": "1"},
        {"commit_scn": None, "scn": "1"},
        {"commit_scn": str(2**63), "scn": str(2**63)},
        {"commit_scn": "4711:1:6.28.807,4712:2:", "scn": "1"},
        {"ts_ms": 7},
    ],
)
def test_what_is_no_position_is_none(source: dict[str, Any]) -> None:
    """A source that tells none, or one of another shape, is compared by nothing."""
    assert _changes({"name": "s", **source}).place[:, 1].tolist() == [NO_VALUE]


def test_some_changes_know_their_own_sources_only() -> None:
    """Changes that are taken out of many name no other source: each source costs a look at all changes."""
    made = _changes(*({"name": "s", "db": "d", "table": f"t{place % 3}", "lsn": place} for place in range(6)))
    assert made.origin.dictionary.to_pylist() == ["s.d.t0", "s.d.t1", "s.d.t2"]
    some = take_changes(made, np.array([2, 5, 1]))
    assert some.origin.to_pylist() == ["s.d.t2", "s.d.t2", "s.d.t1"]
    assert some.origin.dictionary.to_pylist() == ["s.d.t1", "s.d.t2"]
    assert slice_changes(some, 0, 2).origin.dictionary.to_pylist() == ["s.d.t2"]
    assert not len(slice_changes(some, 0, 0).origin)


def test_a_server_that_took_over_repeats_nothing() -> None:
    """MySQL: what began at the old server stands in files of smaller numbers then, under its old number and server."""
    uuid, other = "8a94f357-aab4-11df-86ab-c80aa9429562", "9a94f357-aab4-11df-86ab-c80aa9429562:tag_1"
    told = [("bin.log.1000000", f"{uuid}:9"), ("bin.log.000003", f"{uuid}:10"), ("bin.log.999999", f"{uuid}:8")]
    told += [("bin.log.000003", f"{other}:3"), ("bin.log.000003", f"{uuid}:9"), ("bin.log.000003", None)]
    place = _changes(*({**_mysql(file), "gtid": gtid} for file, gtid in told)).place
    below = mark_below(place, place[0, 1:])
    assert below.tolist() == [False, False, True, False, False, True]
    assert mark_above(place, place[0, 1:]).tolist() == [False, False, False, False, False, False]
    assert mark_above(place, place[2, 1:]).tolist() == [True, False, False, False, False, False]
    assert len(set(place[:, 0].tolist())) == 1


@pytest.mark.parametrize(
    ("place", "below", "above"),
    [
        ((5, 3, 2), False, False),
        ((4, 9, 9), True, False),
        ((6, 0, 0), False, True),
        ((5, 2, 9), True, False),
        ((5, 4, 0), False, True),
        ((5, 3, 1), True, False),
        ((5, 3, 3), False, True),
    ],
)
def test_places_compare_number_by_number(place: tuple[int, int, int], below: bool, above: bool) -> None:
    """The first number counts before the second, and this before the third."""
    some = np.array([[7, *place]], np.int64)
    limit = np.array([5, 3, 2], np.int64)
    assert (mark_below(some, limit).tolist(), mark_above(some, limit).tolist()) == ([below], [above])
