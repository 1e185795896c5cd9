"""The name of a destination -> what opens it: the only place that lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connector.sink.destinations.context import DestinationContext
from connector.sink.destinations.iceberg.destination import open_iceberg
from connector.sink.destinations.opensearch.destination import open_opensearch
from connector.sink.model.destination import Destination

DESTINATIONS: Mapping[str, Callable[[DestinationContext], Destination]] = {
    "iceberg": open_iceberg,
    "opensearch": open_opensearch,
}
"""By `SinkSettings.destination`."""
