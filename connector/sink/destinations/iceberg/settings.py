"""properties -> TableSettings of a sink into Iceberg tables."""

from __future__ import annotations

from connector.settings.configdef.common import OptionScope
from connector.settings.configdef.reader import ConfigReader
from connector.settings.iceberg import catalog, tables
from connector.settings.iceberg.maintenance import options
from connector.settings.iceberg.tables import TableSettings
from connector.settings.sink.sink_types import SinkTypeSettings

CHAPTERS = (
    OptionScope("Catalog", catalog.SINK_CATALOG.all, (catalog.SINK_CATALOG.rest,)),
    OptionScope("Tables", tables.OPTIONS, tables.PREFIXES),
    OptionScope("Maintenance", options.OPTIONS),
)


def _build(reader: ConfigReader) -> tuple[TableSettings, None]:
    return tables.build(reader), None


SETTINGS = SinkTypeSettings(_build, CHAPTERS, title="Iceberg")
