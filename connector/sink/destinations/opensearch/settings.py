"""properties -> OpenSearchSettings, and TableSettings of the rows that become documents."""

from __future__ import annotations

from connector.settings.configdef.common import OptionScope
from connector.settings.configdef.reader import ConfigReader
from connector.settings.connector_class import OPENSEARCH_SINK_CLASS
from connector.settings.iceberg import catalog, routing, tables
from connector.settings.iceberg.tables import TableSettings
from connector.settings.opensearch import aiven, data_streams, documents
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.settings.sink.sink_types import SinkTypeSettings

CHAPTERS = (
    OptionScope("OpenSearch", documents.OPTIONS),
    OptionScope("Indexes", tables.INDEX_OPTIONS, (routing.ROUTE_REGEX,)),
    OptionScope("Catalog of the offsets", catalog.SINK_CATALOG.all, (catalog.SINK_CATALOG.rest,)),
)


def _build(reader: ConfigReader) -> tuple[TableSettings, OpenSearchSettings]:
    table, settings = tables.build(reader, indexes=True), documents.build(reader)
    upsert = table.upsert and not settings.key_ignore
    data_streams.check(reader, settings.series, upsert=upsert, partial=settings.partial)
    return table, settings


SETTINGS = SinkTypeSettings(
    _build,
    CHAPTERS,
    title="OpenSearch",
    own_options=documents.OPTIONS,
    foreign_keys=aiven.FOREIGN_KEYS,
    connector_class=OPENSEARCH_SINK_CLASS,
)
