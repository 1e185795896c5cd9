"""A source's tables -> fresh indexes, loaded while searches still see the old ones, then swapped in one step.

The position moves to the snapshot that was loaded: the source continues with the changes after it.
"""

from __future__ import annotations

import structlog

from connector.errors import ConfigError
from connector.runtime.spark.session import open_session
from connector.settings import SourceSettings
from connector.settings.source.settings import SINK_TYPE
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
    with open_session(settings) as spark:
        source = build_tables(spark, settings)
        discovered = source.find()
        missing = sorted(set(tables) - discovered.keys())
        if missing:
            raise ConfigError(f"reindex: the source reads no table {', '.join(missing)}; check table.include.list")
        for name in sorted(tables or discovered):
            capture = source.open(*discovered[name])
            if capture is None:
                raise missing_table(name, settings, source.find_in_other_case(*discovered[name]))
            fresh = REBUILDS[settings.sink_type](settings, name)
            report = capture.reload(fresh.publisher, fresh.put_in_place)
            seconds = round(report.seconds, 1)
            structlog.get_logger().info(
                "index rebuilt", table=name, index=fresh.name, alias=fresh.alias, seconds=seconds
            )
