"""properties -> CaptureSettings: which tables and columns are read, from where on, and how often.

Names and defaults: Debezium's relational connectors; those that begin with `iceberg.` are ours.
"""

from __future__ import annotations

import re
from typing import Literal, cast

import attrs

from connector.settings.configdef import regexps
from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import (
    BOOLEAN,
    KEY_COLUMNS,
    PATTERNS,
    TABLE_NAME,
    TEXT,
    one_of,
    whole_number,
)

SnapshotMode = Literal["initial", "no_data", "initial_only", "when_needed", "always"]

TABLES = Option(
    name="table.include.list",
    kind=PATTERNS,
    default=(),
    importance="high",
    doc="Tables to capture: regular expressions, comma separated, for whole names <namespace>.<table>; not set: all.",
)
EXCLUDED_TABLES = Option(
    name="table.exclude.list",
    kind=PATTERNS,
    default=(),
    importance="medium",
    doc="Tables not to capture, in the same way; not together with table.include.list.",
)
COLUMNS = Option(
    name="column.include.list",
    kind=PATTERNS,
    default=(),
    importance="medium",
    doc="Columns to include in events: regular expressions for <namespace>.<table>.<column>; keys are always complete.",
)
EXCLUDED_COLUMNS = Option(
    name="column.exclude.list",
    kind=PATTERNS,
    default=(),
    importance="medium",
    doc="Columns to exclude from events, in the same way; not together with column.include.list.",
)
KEYS = Option(
    name="message.key.columns",
    kind=KEY_COLUMNS,
    default=(),
    importance="high",
    doc="Record key columns, instead of the identifier fields: <namespace>.<table>:<column>,<column>;... "
    "with dots for fields of structs; a table has the columns of all entries that match it.",
)
SNAPSHOT_MODE = Option(
    name="snapshot.mode",
    kind=one_of("initial", "no_data", "initial_only", "when_needed", "always", any_case=True),
    default="initial",
    importance="high",
    doc="initial reads a table in full, then its changes; no_data only changes from now on; initial_only the full read "
    "alone; when_needed reads in full again where history is gone; always at every start.",
)
POLL_INTERVAL = Option(
    name="poll.interval.ms",
    kind=whole_number(1, 2**31 - 1),
    default=1000,
    importance="medium",
    doc="Milliseconds between two polls for new snapshots.",
)
MAX_BATCH_SIZE = Option(
    name="max.batch.size",
    kind=whole_number(1),
    default=1_000_000,
    importance="medium",
    doc="Approximate rows per part of the initial snapshot, after which the offset is stored; at least one file.",
)
BRANCH = Option(
    name="iceberg.branch",
    kind=TEXT,
    default="main",
    importance="medium",
    doc="Branch of the tables to read.",
)
SKIP_OWN = Option(
    name="iceberg.skip.own.commits",
    kind=BOOLEAN,
    default=False,
    importance="medium",
    doc="Skip snapshots committed by an icebridge sink, so that two bridges do not loop.",
)
OFFSETS_TABLE = Option(
    name="offset.storage.iceberg.table-name",
    kind=TABLE_NAME,
    default="_debezium_offset_storage",
    importance="low",
    doc="Table for the stored offsets, one row per captured table.",
)
OPTIONS: tuple[Option[object], ...] = (
    TABLES,
    EXCLUDED_TABLES,
    COLUMNS,
    EXCLUDED_COLUMNS,
    KEYS,
    SNAPSHOT_MODE,
    POLL_INTERVAL,
    MAX_BATCH_SIZE,
    BRANCH,
    SKIP_OWN,
    OFFSETS_TABLE,
)

_BARE_NAME = re.compile(r"[\w-]+")


@attrs.frozen
class CaptureSettings:
    """What is read; expressions are Java's, matched as Debezium does: the whole name, in any case of letters."""

    tables: tuple[str, ...]
    tables_not: tuple[str, ...]
    columns: tuple[str, ...]
    columns_not: tuple[str, ...]
    keys: tuple[tuple[str, tuple[str, ...]], ...]
    snapshot_mode: SnapshotMode
    poll_interval_ms: int
    max_batch_size: int
    branch: str
    skip_own: bool
    offsets_table: str

    def takes(self, table: str) -> bool:
        """Whether a table is read, by its name with namespace."""
        return _is_included(table, self.tables, self.tables_not)

    def keeps(self, table: str, column: str) -> bool:
        """Whether events hold a column."""
        return _is_included(f"{table}.{column}", self.columns, self.columns_not)

    def key_columns(self, table: str) -> tuple[str, ...]:
        """The configured key columns of a table, those of all entries for it; none when nothing is said of it."""
        named = (column for tables, columns in self.keys if _matches(tables, table) for column in columns)
        return tuple(dict.fromkeys(named))


def _is_included(name: str, wanted: tuple[str, ...], unwanted: tuple[str, ...]) -> bool:
    if wanted:
        return any(_matches(pattern, name) for pattern in wanted)
    return not any(_matches(pattern, name) for pattern in unwanted)


def _matches(pattern: str, name: str) -> bool:
    return regexps.compile_java(pattern, ignore_case=True).fullmatch(name) is not None


def build(reader: ConfigReader) -> CaptureSettings:
    """Read the part about what is captured; faults go to the reader."""
    for wanted, unwanted in ((TABLES, EXCLUDED_TABLES), (COLUMNS, EXCLUDED_COLUMNS)):
        entry = reader.entry(unwanted)
        if entry and reader.entry(wanted):
            reader.add_fault(entry, f"{wanted.name} is given too", "keep one of them")
    _refuse_bare_columns(reader)
    return CaptureSettings(
        tables=reader.get(TABLES),
        tables_not=reader.get(EXCLUDED_TABLES),
        columns=reader.get(COLUMNS),
        columns_not=reader.get(EXCLUDED_COLUMNS),
        keys=reader.get(KEYS),
        snapshot_mode=cast("SnapshotMode", reader.get(SNAPSHOT_MODE)),
        poll_interval_ms=reader.get(POLL_INTERVAL),
        max_batch_size=reader.get(MAX_BATCH_SIZE),
        branch=reader.get(BRANCH),
        skip_own=reader.get(SKIP_OWN),
        offsets_table=reader.get(OFFSETS_TABLE),
    )


def _refuse_bare_columns(reader: ConfigReader) -> None:
    """Refuse a column's name alone: it matches none, and a column that is to be left out would be published."""
    for option in (COLUMNS, EXCLUDED_COLUMNS):
        entry, bare = reader.entry(option), next(filter(_BARE_NAME.fullmatch, reader.get(option)), None)
        if entry and bare is not None:
            todo = f"write <namespace>.<table>.{bare}, or .*[.]{bare} for the columns of all tables"
            reader.add_fault(entry, f"{bare!r} matches no column, as whole names are compared", todo)
