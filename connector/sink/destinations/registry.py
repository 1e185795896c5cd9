"""Name of a sink type -> the destination in the folder of that name.

The names are in `settings.sink.sink_types`. A folder has `settings.SETTINGS` and `destination.open_destination`, and
nothing else names it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from connector.settings.sink.sink_types import DESTINATIONS_PACKAGE
from connector.sink.destinations.context import DestinationContext
from connector.sink.model.destination import Destination


def open_destination(context: DestinationContext) -> Destination:
    """Open the destination of a sink. Raises as the destination does."""
    module = import_module(f"{DESTINATIONS_PACKAGE}.{context.settings.sink_type}.destination")
    opened: Callable[[DestinationContext], Destination] = module.open_destination
    return opened(context)
