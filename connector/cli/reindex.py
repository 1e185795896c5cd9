"""A source's tables -> fresh indexes, loaded while searches still see the old ones, then swapped in one step.

The position moves to the snapshot that was loaded: the source goes on with the changes after it.
"""

from __future__ import annotations

import time
from functools import partial

import structlog

from connector.errors import ConfigError
from connector.opensearch.indexes.index_admin import IndexAdmin
from connector.opensearch.indexes.index_names import to_index_name
from connector.runtime.spark.session import open_session
from connector.settings import SourceSettings
from connector.source.destinations.opensearch import OpenSearchPublisher
from connector.source.factory import build_tables


def reindex_tables(settings: SourceSettings, *, tables: tuple[str, ...] = ()) -> None:
    """Build the indexes of some tables (all that the source reads, by default) anew. The source must not run meanwhile.

    Raises:
        ConfigError: the source's changes do not go to OpenSearch, or it reads no such table.
        ConnectorError: what stopped it; the index that was being replaced is as it was.
    """
    if settings.search is None:
        raise ConfigError("reindex: the source publishes to Kafka; set debezium.sink.type=opensearch")
    indexes = IndexAdmin(settings.search)
    with open_session(settings) as spark:
        source = build_tables(spark, settings)
        found = source.find()
        missing = sorted(set(tables) - found.keys())
        if missing:
            raise ConfigError(f"reindex: the source reads no table {', '.join(missing)}; check table.include.list")
        for name in sorted(tables or found):
            alias = to_index_name(settings.outgoing.topic(name))
            fresh = f"{alias}-{time.time_ns() // 1_000_000}"
            report = source.open(*found[name]).reload(
                OpenSearchPublisher(settings, settings.search, indexes, partial(_fresh_name, fresh)),
                partial(indexes.swap_alias, alias, fresh),
            )
            log = structlog.get_logger()
            log.info("index rebuilt", table=name, index=fresh, alias=alias, seconds=round(report.seconds, 1))


def _fresh_name(fresh: str, topic: str) -> str:  # noqa: ARG001 - one table at a time
    return fresh
