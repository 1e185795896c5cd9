"""`debezium.sink.type` -> the publisher of a source's changes: the one place that names them all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connector.settings import SourceSettings
from connector.source.destination import ChangePublisher, TargetRebuild
from connector.source.destinations.kafka import open_kafka_publisher
from connector.source.destinations.opensearch import open_opensearch_publisher, rebuild_index

PUBLISHERS: Mapping[str, Callable[[SourceSettings], ChangePublisher]] = {
    "kafka": open_kafka_publisher,
    "opensearch": open_opensearch_publisher,
}


REBUILDS: Mapping[str, Callable[[SourceSettings, str], TargetRebuild]] = {"opensearch": rebuild_index}
"""Where the target of a table can be built again while consumers still see the old one."""


def open_publisher(settings: SourceSettings) -> ChangePublisher:
    """Open the publisher that the settings name.

    Raises:
        RetriableError: its cluster is away.
    """
    return PUBLISHERS[settings.sink_type](settings)
