"""A source's tables -> fresh indexes, loaded while searches still see the old ones, then swapped in one step.

The position moves to the snapshot that was loaded: the source continues with the changes after it. An error, or a
signal, ends a load at once, and its index is deleted; with the swap the position moves, whatever signal comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from connector.errors import ConfigError, ConnectorError
from connector.runtime.spark.session import open_session
from connector.runtime.stop_signals import leave_if_asked
from connector.settings import SourceSettings
from connector.settings.source.settings import SINK_TYPE
from connector.source.destination import TargetRebuild
from connector.source.destinations.registry import REBUILDS
from connector.source.factory import build_tables
from connector.source.snapshots.discovery import missing_table


def reindex_tables(settings: SourceSettings, *, tables: tuple[str, ...] = ()) -> None:
    """Build the indexes of tables again, by default of all that the source reads. The source must not run meanwhile.

    Raises:
        ConfigError: the source's changes do not go to OpenSearch, or it reads no such table.
        ConnectorError: what stopped it; the index that was being replaced is as it was.
    """
    if settings.sink_type not in REBUILDS:
        raise ConfigError(f"reindex: the source publishes to Kafka; set {SINK_TYPE.name}={' or '.join(REBUILDS)}")
    with _discard_unfinished() as begun, open_session(settings) as spark:
        source = build_tables(spark, settings)
        discovered = source.find()
        missing = sorted(set(tables) - discovered.keys())
        if missing:
            raise ConfigError(f"reindex: the source reads no table {', '.join(missing)}; check table.include.list")
        for name in sorted(tables or discovered):
            leave_if_asked()
            capture = source.open(*discovered[name])
            if capture is None:
                raise missing_table(name, settings, source.find_in_other_case(*discovered[name]))
            fresh = REBUILDS[settings.sink_type](settings, name)
            begun.append(fresh)

            def put_in_place(fresh: TargetRebuild = fresh) -> None:
                begun.clear()  # at first: whatever comes of it, the index may be what searches see
                fresh.put_in_place()

            report = capture.reload(fresh.publisher, put_in_place)
            seconds = round(report.seconds, 1)
            structlog.get_logger().info(
                "index rebuilt", table=name, index=fresh.name, alias=fresh.alias, seconds=seconds
            )


@contextmanager
def _discard_unfinished() -> Iterator[list[TargetRebuild]]:
    """Delete what was begun inside, and is still listed in the end: by then none of Spark's tasks writes to it.

    A bulk request to an index that is gone makes it anew.
    """
    begun = list[TargetRebuild]()
    try:
        yield begun
    finally:
        for fresh in begun:
            try:
                fresh.discard()
            except ConnectorError as error:
                structlog.get_logger().warning("an unfinished index was left", index=fresh.name, reason=str(error))
