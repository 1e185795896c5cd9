"""The sink's type -> what opens its destination: the only place of the sink that lists them.

The same names have their options in `settings.sink.sink_types`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connector.sink.destinations.context import DestinationContext
from connector.sink.destinations.iceberg.destination import open_iceberg
from connector.sink.destinations.opensearch.destination import open_opensearch
from connector.sink.model.destination import Destination

DESTINATIONS: Mapping[str, Callable[[DestinationContext], Destination]] = {
    "iceberg": open_iceberg,
    "icebergevents": open_iceberg,
    "opensearch": open_opensearch,
}
"""By `SinkSettings.sink_type`."""
