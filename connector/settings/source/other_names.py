"""keys of other programs in a source's file -> notes where nothing depends on them, else what to write instead.

Names: Debezium's connectors for databases, Data Prepper's Iceberg source. What would change events, such as masks of
columns, stops the start.
"""

from __future__ import annotations

from collections.abc import Mapping

from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.unknown_keys import ForeignKeys
from connector.settings.source import capture

_PREFIX_OF_STRATEGIES = "io.debezium.schema."
_ONLY: Mapping[str, tuple[tuple[str, ...], str]] = {
    "event.processing.failure.handling.mode": (("fail",), "take it out: a table whose changes cannot be read stops"),
    "event.converting.failure.handling.mode": (
        ("fail",),
        "take it out: what cannot be written stops its table",
    ),
    "topic.naming.strategy": (
        tuple(f"{_PREFIX_OF_STRATEGIES}{name}TopicNamingStrategy" for name in ("Schema", "Default")),
        "take it out: topics are named <topic.prefix>.<namespace>.<table>",
    ),
}
"""Key -> the values that it may have here, and what to do about another one."""

_HIDE = f"leave the column out with {capture.EXCLUDED_COLUMNS.name}, or mask its values where the table is written"
_BY_SIGNAL = f"set {capture.SNAPSHOT_MODE.name}=no_data, and ask for what is to be read by a signal"
_REFUSED: Mapping[str, str] = {
    "column.mask.": _HIDE,
    "column.truncate.": _HIDE,
    "converters": "take it out: the column's type says how its values are written (docs/reference/types.md)",
    "post.processors": "take it out, and put what it adds into the table",
    "snapshot.include.collection.list": f"{_BY_SIGNAL} (execute-snapshot)",
    "snapshot.select.statement.overrides": f"{_BY_SIGNAL} (execute-snapshot with additional-conditions)",
    "sourceinfo.struct.maker": "take it out: the block source has the fields of Debezium's, and the snapshot's",
}
"""How keys begin that would change events -> what to do without them."""

REFUSED = ForeignKeys("", frozenset(), tuple(_REFUSED))
"""Let through to where they are refused by name."""
TUNING = ForeignKeys(
    "these keys of Debezium's connectors say how a database is read and have no effect here",
    frozenset(
        {
            *_ONLY,
            "custom.metric.tags",
            "errors.max.retries",
            "exactly.once.support",
            "executor.shutdown.timeout.ms",
            "heartbeat.action.query",
            "include.schema.comments",
            "incremental.snapshot.allow.schema.changes",
            "incremental.snapshot.watermarking.strategy",
            "max.queue.size",
            "max.queue.size.in.bytes",
            "min.row.count.to.stream.results",
            "query.fetch.size",
            "read.only",
            "retriable.restart.connector.wait.ms",
            "snapshot.delay.ms",
            "snapshot.fetch.size",
            "snapshot.isolation.mode",
            "snapshot.lock.timeout.ms",
            "snapshot.locking.mode",
            "snapshot.max.threads",
            "snapshot.max.threads.multiplier",
            "snapshot.tables.order.by.row.count",
            "statistic.metrics.enabled",
            "streaming.delay.ms",
            "topic.cache.size",
            "transaction.boundary",
            "transaction.boundary.interval.ms",
        }
    ),
)

MEANT: Mapping[str, str] = {
    "column.blacklist": capture.EXCLUDED_COLUMNS.name,
    "column.whitelist": capture.COLUMNS.name,
    "disable_export": f"{capture.SNAPSHOT_MODE.name}=no_data",
    "identifier_columns": capture.KEYS.name,
    "polling_interval": capture.POLL_INTERVAL.name,
    "schema.exclude.list": capture.EXCLUDED_TABLES.name,
    "schema.include.list": capture.TABLES.name,
    "table.blacklist": capture.EXCLUDED_TABLES.name,
    "table.whitelist": capture.TABLES.name,
    "table_name": capture.TABLES.name,
    "tables": capture.TABLES.name,
}
"""Key of another program -> what to write instead of it."""


def check(reader: ConfigReader) -> None:
    """Refuse what asks for events other than this source's."""
    for key, (values, todo) in _ONLY.items():
        entry = reader.entries.get(key)
        if entry is None:
            continue
        text = reader.text(entry)
        if text and text.lower() not in {value.lower() for value in values}:
            reader.add_fault(entry, f"can only be {' or '.join(values)} here", todo)
    for key, entry in reader.entries.items():
        instead = next((todo for start, todo in _REFUSED.items() if key.startswith(start)), None)
        if instead is not None and entry.text.strip():
            reader.add_fault(entry, "is not supported by this source", instead)
