"""properties -> TableSettings of a sink that keeps every event as text in one Iceberg table."""

from __future__ import annotations

import attrs

from connector.settings.configdef.reader import ConfigReader
from connector.settings.iceberg import tables
from connector.settings.iceberg.tables import TableSettings
from connector.settings.sink.sink_types import SinkTypeSettings
from connector.sink.destinations.iceberg.settings import CHAPTERS


def _build(reader: ConfigReader) -> tuple[TableSettings, None]:
    return attrs.evolve(tables.build(reader), upsert=False, routes=None, events_only=True), None


SETTINGS = SinkTypeSettings(_build, CHAPTERS)
