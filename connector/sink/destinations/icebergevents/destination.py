"""The one Iceberg table of events as a destination: what is special about it is in its settings (`events_only`)."""

from __future__ import annotations

from connector.sink.destinations.iceberg.destination import open_destination

__all__ = ["open_destination"]
