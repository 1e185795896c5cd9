"""A sink's settings -> the one Iceberg table of events: what is special about it is in them (`events_only`)."""

from __future__ import annotations

from connector.sink.destinations.iceberg.destination import open_destination

__all__ = ["open_destination"]
