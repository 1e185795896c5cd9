"""gtid, file and pos of MySQL and MariaDB -> position numbers, each with the log that it is of."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from serde.arrays import Ints, valid_mask
from serde.events.positions.log_positions import LOG_SEPARATOR, NO_VALUE, source_number
from serde.events.positions.position_numbers import (
    FindColumn,
    PositionNumbers,
    blank_texts,
    read_integers,
    zero_unknown,
)

_TRANSACTION = r"^(?P<server>[0-9A-Fa-f-]{36}(?::\w{1,32})?):(?P<number>\d{1,18})$"
_GTID = r"^(?P<server>\d{1,10}-\d{1,10})-(?P<number>\d{1,18})$"
_FILE = re.compile(r"(.*)\.(\d{1,9})")
_POS_BITS = 32
_LOW_32_BITS = 0xFFFFFFFF


def read_gtids(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    """Return the place of MariaDB's transactions, each in the log of the server that it began in."""
    # MySQL's are no such numbers: the members of a group share an id, and give theirs out in blocks.
    gtid = column("gtid")
    if gtid is None or not pa.types.is_string(gtid.type) or gtid.null_count == count:
        return None
    if pc.all(pc.match_substring(gtid, ":")).as_py():
        return None
    server, number = pc.extract_regex(gtid, pattern=_GTID).flatten()
    if number.null_count == count:
        return None
    first = read_integers(number, count)
    # A transaction is of the server that it began in, whoever's log it is read from.
    series = pc.binary_join_element_wise(LOG_SEPARATOR, server, "").fill_null("")
    return PositionNumbers((first,), first != NO_VALUE, series)


def read_binlog(column: FindColumn, order: Ints, count: int) -> PositionNumbers | None:  # noqa: ARG001 - one shape for all
    """Return the place in the log's files, each in the log of its server, and MySQL's number of the transaction."""
    # Not the row: the events of a compressed transaction all have its place, and each counts its rows from 0.
    file, pos, server = column("file"), column("pos"), column("server_id")
    # Flattened events may not tell the server: its files and those of another one would be one log.
    if file is None or pos is None or server is None or not pa.types.is_string(file.type):
        return None
    coded = file.dictionary_encode()
    numbers = [int(found[2]) if (found := _FILE.fullmatch(name)) else NO_VALUE for name in coded.dictionary.to_pylist()]
    number = np.array([*numbers, NO_VALUE], np.int64)[np.asarray(coded.indices.fill_null(len(numbers)), np.int64)]
    at = read_integers(pos, count)
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
    return owner, zero_unknown(read_integers(number, len(gtid)))


def _binlog_series(column: FindColumn, count: int) -> pa.StringArray:
    """The server and the name of its log files: what of another server, or another series, does not compare."""
    coded = column("file").dictionary_encode()  # type: ignore[union-attr]
    stems = pa.array(
        [found[1] if (found := _FILE.fullmatch(n)) else "" for n in coded.dictionary.to_pylist()], pa.string()
    )
    stem = stems.take(coded.indices).fill_null("") if len(stems) else blank_texts(count)
    server = column("server_id")
    number = server is not None and (pa.types.is_integer(server.type) or pa.types.is_string(server.type))
    text = server.cast(pa.string()).fill_null("") if server is not None and number else blank_texts(count)
    return pc.binary_join_element_wise(LOG_SEPARATOR, text, "/", stem, "")
