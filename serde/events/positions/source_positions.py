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

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, Mask, valid_mask
from serde.events.positions.binlog_positions import read_binlog, read_gtids
from serde.events.positions.log_positions import (
    FIRST_NUMBER,
    LOG_SEPARATOR,
    NO_VALUE,
    SOURCE_COLUMN,
    LogPositions,
    source_number,
    unknown_positions,
)
from serde.events.positions.lsn_positions import mark_narrow_lsns, read_decimal_lsns, read_hex_lsns
from serde.events.positions.position_numbers import (
    FindColumn,
    PositionNumbers,
    blank_texts,
    read_integers,
    zero_unknown,
)

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

_SECOND_MS = 1000
_FIRST_THREAD = 1


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
    found, more = _read_log_position(column, read_integers(order, count), count)
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


def mark_clock_dates(column: FindColumn, count: int) -> Mask:
    """Mark the events whose dates do not rise with the log.

    MongoDB's are of the clock of the node that wrote, and another one may be behind it. SQL Server's are those of the
    beginnings of transactions, Informix's those of the connector's clock.
    """
    return _has_wall_time(column, count) | mark_narrow_lsns(column("commit_lsn"), count)


def _has_wall_time(column: FindColumn, count: int) -> Mask:
    told = column("wallTime")
    return np.zeros(count, np.bool_) if told is None else valid_mask(told)


def _read_number(name: str) -> Callable[[FindColumn, Ints, int], PositionNumbers | None]:
    """Return the reader of places that are one whole number of a column, and the order within it."""

    def read(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:
        number = column(name)
        if number is None or not pa.types.is_integer(number.type):
            return None
        first = read_integers(number, count)
        return PositionNumbers((first, zero_unknown(order)), first != NO_VALUE)

    return read


def _read_scns(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    commit = column("commit_scn")
    if commit is None:
        return None
    first = read_integers(commit, count)
    # Not ssn: it counts again in each redo record, and several of a transaction may share their scn.
    numbers = (first, zero_unknown(read_integers(column("scn"), count)))
    return PositionNumbers(numbers, first != NO_VALUE, _name_redo_threads(column("redo_thread"), count))


def _name_redo_threads(thread: pa.Array | None, count: int) -> pa.StringArray | None:
    """The redo thread that an event is of, where it is not the only one that most databases have."""
    numbers = read_integers(thread, count)
    if (numbers <= _FIRST_THREAD).all():
        return None
    text = pc.binary_join_element_wise(LOG_SEPARATOR, pa.array(numbers).cast(pa.string()), "")
    return pc.if_else(pa.array(numbers > _FIRST_THREAD), text, "")


def _read_mongo(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    second, place = column("ts_ms"), column("ord")
    if second is None or place is None:
        return None
    first, then = read_integers(second, count), read_integers(place, count)
    known = (first != NO_VALUE) & (then != NO_VALUE) & (first % _SECOND_MS == 0) & ~_has_wall_time(column, count)
    return PositionNumbers((np.where(known, first, NO_VALUE), then), known)


def _read_vitess(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:
    epoch, rank, shard = (column(name) for name in (*TRANSACTION_FIELDS, "shard"))
    # Flattened events may not tell the shard: each has transactions of its own.
    if epoch is None or rank is None or shard is None:
        return None
    first, then = read_integers(epoch, count), read_integers(rank, count)
    known = (first >= 0) & (then >= 0)
    text = shard.fill_null("") if pa.types.is_string(shard.type) else blank_texts(count)
    series = pc.binary_join_element_wise(LOG_SEPARATOR, text, "")
    return PositionNumbers((np.where(known, first, NO_VALUE), then, zero_unknown(order)), known, series)


_READERS = (
    _read_vitess,
    _read_number("lsn"),  # PostgreSQL
    read_gtids,
    read_binlog,
    read_hex_lsns,
    read_decimal_lsns,
    _read_scns,
    _read_mongo,
    _read_number("sequence_number"),  # Iceberg
)
