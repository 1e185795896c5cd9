"""declarations -> one list: every option and prefix of the sink by scope, in the order documents show them."""

from __future__ import annotations

from connector.settings.configdef.common import NAME, SPARK_PREFIX, OptionScope
from connector.settings.converters import event_format
from connector.settings.iceberg import catalog, routing, tables
from connector.settings.kafka import batching, error_handling, kafka
from connector.settings.opensearch import documents
from connector.settings.sink.sink_types import SINK_TYPE

SCOPES = (
    OptionScope("The sink", (NAME, SINK_TYPE)),
    OptionScope("Kafka", kafka.OPTIONS, kafka.PREFIXES),
    OptionScope("Catalog", catalog.SINK_CATALOG.all, (catalog.SINK_CATALOG.rest,)),
    OptionScope("Tables", tables.OPTIONS, tables.PREFIXES),
    OptionScope("Events", event_format.OPTIONS),
    OptionScope("Batches", batching.OPTIONS),
    OptionScope("Errors", error_handling.OPTIONS),
    OptionScope("Spark", (), (SPARK_PREFIX,)),
)
OPENSEARCH_SCOPES = (
    *SCOPES[:2],
    OptionScope("OpenSearch", documents.OPTIONS),
    OptionScope("Indexes", tables.INDEX_OPTIONS, (routing.ROUTE_REGEX,)),
    OptionScope("Catalog of the offsets", catalog.SINK_CATALOG.all, (catalog.SINK_CATALOG.rest,)),
    *SCOPES[4:],
)
"""The chapters of the OpenSearch sink."""

OPTIONS = (*(option for scope in SCOPES for option in scope.options), *documents.OPTIONS)
PREFIXES = tuple(prefix for scope in SCOPES for prefix in scope.prefixes)
NAMES = tuple(name for option in OPTIONS for name in option.names)
