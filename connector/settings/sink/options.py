"""declarations -> one list: every option and prefix of the sink by scope, in the order documents show them."""

from __future__ import annotations

import attrs

from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.value_types import TOPIC_NAME, InvalidValue, ValueType
from connector.settings.converters import event_format
from connector.settings.iceberg import catalog, routing, tables
from connector.settings.kafka import batching, error_handling, kafka
from connector.settings.opensearch import sink


def _parse_sink_type(text: str) -> str:
    if text in {"iceberg", "icebergevents", "opensearch"}:
        return text
    raise InvalidValue("{} is not a sink of this program", "write iceberg, icebergevents or opensearch")


NAME = Option(
    name="name",
    kind=TOPIC_NAME,
    default="icebridge",
    importance="high",
    doc="Name of this sink, stored in every commit: do not change it. Two sinks on the same tables need two names.",
)
SINK_TYPE = Option(
    name="debezium.sink.type",
    kind=ValueType("string", _parse_sink_type),
    default="iceberg",
    importance="low",
    doc="iceberg: tables of rows; icebergevents: every event as text in one table; opensearch: documents in indexes.",
)
SPARK_PREFIX = Prefix(
    name="spark.",
    target="Spark",
    importance="low",
    doc="Any Spark setting, passed on unchanged.",
)


@attrs.frozen
class OptionScope:
    """A chapter of the reference."""

    title: str
    options: tuple[Option[object], ...]
    prefixes: tuple[Prefix, ...] = ()


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
    OptionScope("OpenSearch", sink.OPTIONS),
    OptionScope("Indexes", tables.INDEX_OPTIONS, (routing.ROUTE_REGEX,)),
    OptionScope("Catalog of the offsets", catalog.SINK_CATALOG.all, (catalog.SINK_CATALOG.rest,)),
    *SCOPES[4:],
)
"""The chapters of the OpenSearch sink."""

OPTIONS = (*(option for scope in SCOPES for option in scope.options), *sink.OPTIONS)
PREFIXES = tuple(prefix for scope in SCOPES for prefix in scope.prefixes)
NAMES = tuple(name for option in OPTIONS for name in option.names)
