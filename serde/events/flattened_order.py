"""Flattened events, and their connector -> what their dates prove, and the fields that would tell their order.

`add.fields` decides what flattened events say of their place in the source's log. Debezium 3.5 and newer name the
connector in a header; an added field may name it too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from attrs import evolve

from serde.arrays import column_at, valid_mask
from serde.events.changes import DELETED_COLUMN, Changes
from serde.events.positions.log_positions import FIRST_NUMBER, NO_VALUE

CLOCK_DATED = frozenset({"sqlserver", "informix", "mongodb"})
"""Connectors whose dates do not rise with their log: `source_positions.mark_clock_dates`."""

ORDER_FIELDS: Mapping[str, str] = {
    "postgresql": "source.lsn,transaction.total_order",
    "mysql": "source.server_id,source.file,source.pos,source.gtid",
    "mariadb": "source.gtid,source.server_id,source.file,source.pos",
    "sqlserver": "source.commit_lsn",
    "oracle": "source.commit_scn,source.scn,source.redo_thread",
    "db2": "source.commit_lsn,source.change_lsn",
    "informix": "source.commit_lsn,source.change_lsn",
    "vitess": "transaction.transaction_epoch,transaction.transaction_rank,source.shard",
}
"""Terms of add.fields that tell where an event stands, by connector."""

UNNAMED = "unnamed"
"""Stands for the connector of events that do not say it."""


def judge_dates(change: Changes, connector: str | None) -> Changes:
    """Return flattened changes whose dates prove nothing if their connector's do not."""
    if connector not in CLOCK_DATED:
        return change
    return evolve(change, clock_dated=np.ones(len(change.rows), np.bool_))


def find_connector(change: Changes, header: str | None, prefix: str) -> str | None:
    """Return the connector of flattened changes, by the header or an added field; None where nothing names it."""
    if header is not None:
        return header
    columns = (column_at(change.row, f"{prefix}{name}") for name in ("source_connector", "connector") if prefix)
    for column in columns:
        if column is not None and pa.types.is_string(column.type):
            there = np.flatnonzero(valid_mask(column))
            return str(column[int(there[0])].as_py()) if len(there) else None
    return None


def find_unplaced(change: Changes, connector: str | None) -> frozenset[str]:
    """Name the connector of flattened changes that do not say where they stand, though its events could; else nothing.

    Reads say nothing of it, and what no transform of Debezium has marked may be of anything.
    """
    untold = (change.place[:, FIRST_NUMBER] == NO_VALUE) & np.isin(change.op, np.frombuffer(b"cud", np.uint8))
    if not untold.any() or DELETED_COLUMN not in change.row.type.names:
        return frozenset()
    return frozenset({connector or UNNAMED} & {*ORDER_FIELDS, UNNAMED})
