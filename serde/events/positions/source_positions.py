"""events -> where they stand in their source's own log: numbers that rise with it, comparable within one source.

Each connector says it in fields of its own (`source` of an envelope, or the columns that add.fields made of them):

    PostgreSQL          lsn, then the place in the transaction
    MariaDB             gtid (domain-server-number); comparable within one domain and server, whoever's log holds it.
                        Not the place in the transaction: after a restart within one it counts anew (before 3.7)
    MySQL, MariaDB      file, pos; comparable within one server and one series of files. Where MySQL tells the number of
                        the transaction (gtid), both have to be smaller: after a failover it stands in another log
    SQL Server          commit_lsn (a hexadecimal text); within a transaction changes are read by statement, and their
                        change_lsn goes to and fro
    Db2                 commit_lsn, change_lsn (longer ones)
    Informix            commit_lsn, change_lsn (texts of digits)
    Oracle              commit_scn, scn (texts or numbers); comparable within one redo thread, as what some versions
                        call the commit is the thread's one before
    MongoDB             ts_ms, ord, where the former is the second of the cluster's time and not a node's clock
    Vitess              transaction_epoch, transaction_rank of the transaction, then the place in it; comparable within
                        one shard (with `VitessOrderedTransactionMetadataFactory`; without it nothing is told)
    Iceberg (ours)      sequence_number, then the place in the transaction

Spanner tells none: its commit time is given in milliseconds, and its record sequence counts again in each transaction.
Nor does Cassandra: each replica has commit logs of its own, and events do not say which node they are of.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask, valid_mask, view_bytes

NO_VALUE = np.iinfo(np.int64).min
"""Stands for "not known"; real values are greater."""

POSITION_FIELDS = (
    "lsn",
    "gtid",
    "server_id",
    "file",
    "pos",
    "commit_lsn",
    "change_lsn",
    "commit_scn",
    "scn",
    "redo_thread",
    "ord",
    "wallTime",
    "sequence_number",
    "shard",
)
"""What a source says of its position; besides `ts_ms` and the place in the transaction."""

TRANSACTION_FIELDS = ("transaction.transaction_epoch", "transaction.transaction_rank")
"""What an envelope's transaction says of it, by path."""

LogPositions = np.ndarray[tuple[int, int], np.dtype[np.int64]]
"""A row per event: a number that names the source, and three that rise with its log, in order of their weight.

The second is `NO_VALUE` where the event does not say where it stands.
"""
SOURCE_COLUMN, FIRST_NUMBER = 0, 1
_SECOND_NUMBER, _THIRD_NUMBER = 2, 3
LOG_SEPARATOR = " @"
"""Stands in the name of a source before what tells its logs apart."""
_MAX_NUMBERS = 4

FindColumn = Callable[[str], pa.Array | None]

_TRANSACTION = r"^(?P<server>[0-9A-Fa-f-]{36}(?::\w{1,32})?):(?P<number>\d{1,18})$"
_GTID = r"^(?P<server>\d{1,10}-\d{1,10})-(?P<number>\d{1,18})$"
_FILE = re.compile(r"(.*)\.(\d{1,9})")
_POS_BITS = 32
_LSN_CHARS, _WIDE_LSN_CHARS = 22, 34
_DIGIT = np.full(256, 255, np.int64)
_DIGIT[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_DIGIT[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)
_LOW_32_BITS = 0xFFFFFFFF
_SECOND_MS = 1000
_FIRST_THREAD = 1


def unknown_positions(count: int, source: int = 0) -> LogPositions:
    """The place of events that do not say it."""
    places = np.zeros((count, _MAX_NUMBERS), np.int64)
    places[:, SOURCE_COLUMN], places[:, FIRST_NUMBER] = source, NO_VALUE
    return places


def read_positions(
    column: FindColumn, order: pa.Array | None, origin: pa.DictionaryArray
) -> tuple[LogPositions, pa.DictionaryArray]:
    """The place of each event, and who it is of: `origin`, and the server and files where only those compare.

    Args:
        column: gives a field of the source, or one of `TRANSACTION_FIELDS`, None where no event has it.
        order: the place in the transaction.
        origin: who the events are of.
    """
    count = len(origin)
    found, more = _read_log_position(column, _to_int64(order, count), count)
    named = origin if more is None else _join_origin(origin, more)
    places = found if found is not None else unknown_positions(count)
    places[:, SOURCE_COLUMN] = _number_sources(named)
    return places, named


def _read_log_position(column: FindColumn, order: Ints, count: int) -> tuple[LogPositions | None, pa.Array | None]:
    """Take the first kind of position that an event has, and tell which server and files it is of."""
    result: LogPositions | None = None
    series: pa.Array | None = None
    for read in _READERS:
        made = read(column, order, count)
        if made is None:
            continue
        numbers, known, names = made
        if names is not None:
            series = names if series is None else pc.if_else(pc.equal(series, ""), names, series)
        fresh = known if result is None else known & (result[:, FIRST_NUMBER] == NO_VALUE)
        result = unknown_positions(count) if result is None else result
        for place, values in enumerate(numbers, FIRST_NUMBER):
            result[:, place] = values if fresh.all() else np.where(fresh, values, result[:, place])
    return result, series


class PositionNumbers(NamedTuple):
    """Positions of one kind: their numbers, which are known, and where only those of one log compare, of which."""

    numbers: tuple[Ints, ...]
    known: Mask
    series: pa.StringArray | None = None


def _read_postgres(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:
    lsn = column("lsn")
    if lsn is None or not pa.types.is_integer(lsn.type):
        return None
    first = _to_int64(lsn, count)
    return PositionNumbers((first, _or_zero(order)), first != NO_VALUE)


def _gtids(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    # MySQL's are no such numbers: the members of a group share an id, and give theirs out in blocks.
    gtid = column("gtid")
    if gtid is None or not pa.types.is_string(gtid.type) or gtid.null_count == count:
        return None
    if pc.all(pc.match_substring(gtid, ":")).as_py():
        return None
    server, number = pc.extract_regex(gtid, pattern=_GTID).flatten()
    if number.null_count == count:
        return None
    first = _to_int64(number, count)
    # A transaction is of the server that it began in, whoever's log it is read from.
    series = pc.binary_join_element_wise(LOG_SEPARATOR, server, "").fill_null("")
    return PositionNumbers((first,), first != NO_VALUE, series)


def _read_binlog(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    # Not the row: the events of a compressed transaction all have its place, and each counts its rows from 0.
    file, pos, server = column("file"), column("pos"), column("server_id")
    # Flattened events may not tell the server: its files and those of another one would be one log.
    if file is None or pos is None or server is None or not pa.types.is_string(file.type):
        return None
    coded = file.dictionary_encode()
    numbers = [int(found[2]) if (found := _FILE.fullmatch(name)) else NO_VALUE for name in coded.dictionary.to_pylist()]
    number = np.array([*numbers, NO_VALUE], np.int64)[np.asarray(coded.indices.fill_null(len(numbers)), np.int64)]
    at = _to_int64(pos, count)
    known = (number != NO_VALUE) & (at >= 0) & (at >> _POS_BITS == 0) & valid_mask(server)
    first = np.where(known, number << _POS_BITS | at, NO_VALUE)
    return PositionNumbers((first, *_number_transactions(column("gtid"))), known, _binlog_series(column, count))


def _number_transactions(gtid: pa.Array | None) -> tuple[Ints, ...]:
    """MySQL's number of each transaction, behind a negative number for who gave it out; none where nothing tells it.

    It proves nothing alone: members of a group give numbers out in blocks.
    """
    if gtid is None or not pa.types.is_string(gtid.type) or gtid.null_count == len(gtid):
        return ()
    server, number = pc.extract_regex(gtid, pattern=_TRANSACTION).flatten()
    if number.null_count == len(number):
        return ()
    coded = server.dictionary_encode()
    names = [-1 - (source_number(name) & _LOW_32_BITS) for name in coded.dictionary.to_pylist()]
    owner = np.array([*names, 0], np.int64)[np.asarray(coded.indices.fill_null(len(names)), np.int64)]
    return owner, _or_zero(_to_int64(number, len(gtid)))


def paired_numbers(place: LogPositions) -> tuple[Ints, Ints, Mask]:
    """Who numbered each change's transaction, that number, and which changes tell it: it rises beside the place."""
    owner, number = place[:, _SECOND_NUMBER], place[:, _THIRD_NUMBER]
    return owner, number, (owner < 0) & (place[:, FIRST_NUMBER] != NO_VALUE)


def _binlog_series(column: FindColumn, count: int) -> pa.StringArray:
    """The server and the name of its log files: what of another server, or another series, does not compare."""
    coded = column("file").dictionary_encode()  # type: ignore[union-attr]
    stems = pa.array(
        [found[1] if (found := _FILE.fullmatch(n)) else "" for n in coded.dictionary.to_pylist()], pa.string()
    )
    stem = stems.take(coded.indices).fill_null("") if len(stems) else _blank(count)
    server = column("server_id")
    number = server is not None and (pa.types.is_integer(server.type) or pa.types.is_string(server.type))
    text = server.cast(pa.string()).fill_null("") if server is not None and number else _blank(count)
    return pc.binary_join_element_wise(LOG_SEPARATOR, text, "/", stem, "")


def _blank(count: int) -> pa.StringArray:
    return pa.array([""] * count, pa.string())  # of no rows Arrow would infer no text


def _read_lsns(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    commit, change = column("commit_lsn"), column("change_lsn")
    if commit is None or not pa.types.is_string(commit.type):
        return None
    top, slot = _parse_hex_lsns(commit)
    if change is not None and (pa.types.is_string(change.type) or pa.types.is_null(change.type)):
        # Snapshots have none.
        high, low = _parse_hex_lsns(change.cast(pa.string()))
    else:
        high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    known = (top != NO_VALUE) & (high != NO_VALUE)
    wide = np.asarray(pc.equal(pc.utf8_length(commit), _WIDE_LSN_CHARS).fill_null(False))
    high, low = np.where(known & wide, high, 0), np.where(wide, low, 0)
    numbers = (np.where(known, top, NO_VALUE), slot << 32 | high >> 32, (high & _LOW_32_BITS) << 16 | low)
    return PositionNumbers(numbers, known)


def _parse_hex_lsns(text: pa.StringArray) -> tuple[Ints, Ints]:
    """The first 64 bits of "00000027:00000ac0:0002", and the 16 behind them; of Db2's longer form the last 64.

    `NO_VALUE` for what is neither, or does not fit.
    """
    data, starts, ends = view_bytes(text)
    top, low = np.full(len(text), NO_VALUE, np.int64), np.zeros(len(text), np.int64)
    there = valid_mask(text)
    for chars, skipped in ((_LSN_CHARS, 0), (_WIDE_LSN_CHARS, 16)):
        rows = np.flatnonzero(there & (ends - starts == chars))
        if not len(rows):
            continue
        at = np.delete(np.arange(chars), (8, 17))
        digits = _DIGIT[data[starts[rows, None] + at]]
        fits = (digits <= 15).all(axis=1) & ~digits[:, :skipped].any(axis=1) & (digits[:, skipped] < 8)  # noqa: PLR2004
        rows, digits = rows[fits], digits[fits]
        top[rows] = digits[:, skipped : skipped + 16] @ (1 << np.arange(60, -1, -4, dtype=np.int64))
        if not skipped:
            low[rows] = digits[:, 16:] @ (1 << np.arange(12, -1, -4, dtype=np.int64))
    return top, low


def _read_scns(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    commit = column("commit_scn")
    if commit is None:
        return None
    first = _to_int64(commit, count)
    # Not ssn: it counts again in each redo record, and several of a transaction may share their scn.
    numbers = (first, _or_zero(_to_int64(column("scn"), count)))
    return PositionNumbers(numbers, first != NO_VALUE, _name_redo_threads(column("redo_thread"), count))


def _name_redo_threads(thread: pa.Array | None, count: int) -> pa.StringArray | None:
    """The redo thread that an event is of, where it is not the only one that most databases have."""
    numbers = _to_int64(thread, count)
    if (numbers <= _FIRST_THREAD).all():
        return None
    text = pc.binary_join_element_wise(LOG_SEPARATOR, pa.array(numbers).cast(pa.string()), "")
    return pc.if_else(pa.array(numbers > _FIRST_THREAD), text, "")


def _read_mongo(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    second, place = column("ts_ms"), column("ord")
    if second is None or place is None:
        return None
    first, then = _to_int64(second, count), _to_int64(place, count)
    known = (first != NO_VALUE) & (then != NO_VALUE) & (first % _SECOND_MS == 0) & ~_has_wall_time(column, count)
    return PositionNumbers((np.where(known, first, NO_VALUE), then), known)


def mark_clock_dates(column: FindColumn, count: int) -> Mask:
    """Mark the events whose dates do not rise with the log.

    MongoDB's are of the clock of the node that wrote, and another one may be behind it. SQL Server's are those of the
    beginnings of transactions, Informix's those of the connector's clock.
    """
    return _has_wall_time(column, count) | _has_lsn(column("commit_lsn"), count)


def _has_wall_time(column: FindColumn, count: int) -> Mask:
    told = column("wallTime")
    return np.zeros(count, np.bool_) if told is None else valid_mask(told)


def _has_lsn(told: pa.Array | None, count: int) -> Mask:
    if told is None or not pa.types.is_string(told.type):
        return np.zeros(count, np.bool_)
    mask: Mask = np.asarray(pc.less(pc.utf8_length(told), _WIDE_LSN_CHARS).fill_null(False))
    return mask


def _read_decimal_lsns(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    commit, change = column("commit_lsn"), column("change_lsn")
    if commit is None or change is None or not pa.types.is_string(commit.type):
        return None
    first, then = _to_int64(commit, count), _to_int64(change, count)
    # Snapshots have 0.
    known = (first > 0) & (then > 0)
    return PositionNumbers((np.where(known, first, NO_VALUE), then), known)


def _read_vitess(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:
    epoch, rank = (column(name) for name in TRANSACTION_FIELDS)
    # Flattened events may not tell the shard: each has transactions of its own.
    if epoch is None or rank is None or column("shard") is None:
        return None
    first, then = _to_int64(epoch, count), _to_int64(rank, count)
    known = (first >= 0) & (then >= 0)
    shard = column("shard")
    text = shard.fill_null("") if shard is not None and pa.types.is_string(shard.type) else _blank(count)
    series = pc.binary_join_element_wise(LOG_SEPARATOR, text, "")
    return PositionNumbers((np.where(known, first, NO_VALUE), then, _or_zero(order)), known, series)


def _read_sequence(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:
    number = column("sequence_number")
    if number is None or not pa.types.is_integer(number.type):
        return None
    first = _to_int64(number, count)
    return PositionNumbers((first, _or_zero(order)), first != NO_VALUE)


_READERS = (
    _read_vitess,
    _read_postgres,
    _gtids,
    _read_binlog,
    _read_lsns,
    _read_decimal_lsns,
    _read_scns,
    _read_mongo,
    _read_sequence,
)


def _to_int64(column: pa.Array | None, count: int) -> Ints:
    """Whole numbers, also as texts of digits or decimals; `NO_VALUE` for what is none."""
    if column is None:
        return np.full(count, NO_VALUE, np.int64)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        digits = pc.match_substring_regex(column, r"^\d{1,18}$").fill_null(False)
        column = pc.if_else(digits, column, pa.scalar(None, pa.string())).cast(pa.int64())
    if not pa.types.is_signed_integer(column.type):
        return np.full(count, NO_VALUE, np.int64)
    return np.asarray(column.cast(pa.int64()).fill_null(NO_VALUE), np.int64)


def _or_zero(numbers: Ints) -> Ints:
    return np.where(numbers == NO_VALUE, 0, numbers)


def _join_origin(origin: pa.DictionaryArray, more: pa.StringArray) -> pa.DictionaryArray:
    """Who events are of, with what tells their logs apart."""
    coded = more.dictionary_encode()
    names, ends = origin.dictionary.to_pylist(), coded.dictionary.to_pylist()
    codes = np.asarray(origin.indices, np.int64) * len(ends) + np.asarray(coded.indices, np.int64)
    used, places = np.unique(codes, return_inverse=True)
    texts = [names[code // len(ends)] + ends[code % len(ends)] for code in used.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), pa.array(texts, pa.string()))


def _number_sources(origin: pa.DictionaryArray) -> Ints:
    numbers = np.array([source_number(name) for name in origin.dictionary.to_pylist()], np.int64)
    return numbers[np.asarray(origin.indices)] if len(numbers) != 1 else np.full(len(origin), numbers[0])


def strip_log_name(name: str) -> str:
    """Return the name of a source without what tells its logs apart."""
    return name.partition(LOG_SEPARATOR)[0]


@lru_cache(maxsize=10_000)
def source_number(name: str) -> int:
    """The number of a source, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1
