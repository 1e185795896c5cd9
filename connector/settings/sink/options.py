"""declarations -> one list: every option and prefix of the sink by scope, in the order documents show them."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from connector.settings import lineage, server
from connector.settings.configdef.common import CONVERTERS, FOREIGN_KEYS, NAME, SOURCE_KEYS, SPARK_PREFIX, OptionScope
from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.unknown_keys import AllowedKeys, ForeignKeys
from connector.settings.connector_class import CONNECTOR_CLASS
from connector.settings.converters import event_format
from connector.settings.iceberg import iceberg_kafka_connect
from connector.settings.iceberg.catalog import SINK_CATALOG
from connector.settings.iceberg.maintenance import options as maintenance
from connector.settings.kafka import batching, error_handling, kafka
from connector.settings.sink.other_names import MEANT
from connector.settings.sink.sink_types import SINK_TYPE, SINK_TYPES, load_sink_type

_FIRST_SCOPES = (OptionScope("The sink", (NAME, SINK_TYPE)), OptionScope("Kafka", kafka.OPTIONS, kafka.PREFIXES))
_LAST_SCOPES = (
    OptionScope("Events", event_format.OPTIONS),
    OptionScope("Batches", batching.OPTIONS),
    OptionScope("Errors", error_handling.OPTIONS),
    OptionScope("Lineage", lineage.OPTIONS),
    OptionScope("Monitoring and REST", server.OPTIONS),
    OptionScope("Spark", (), (SPARK_PREFIX,)),
)


@attrs.frozen
class SinkOptions:
    """What sinks of any type take: options and prefixes, each name once, and keys of other programs."""

    options: tuple[Option[object], ...]
    prefixes: tuple[Prefix, ...]
    allowed: AllowedKeys

    @property
    def names(self) -> tuple[str, ...]:
        """All names of all options."""
        return tuple(name for option in self.options for name in option.names)


def scopes_of(sink_type: str) -> tuple[OptionScope, ...]:
    """Return the chapters of a type's reference."""
    return (*_FIRST_SCOPES, *load_sink_type(sink_type).chapters, *_LAST_SCOPES)


def collect_options() -> SinkOptions:
    """Return what the sinks of all types take."""
    types = [load_sink_type(name) for name in SINK_TYPES]
    scopes = [scope for name in SINK_TYPES for scope in scopes_of(name)]
    options = _distinct(option for scope in scopes for option in scope.options)
    prefixes = tuple(dict.fromkeys(prefix for scope in scopes for prefix in scope.prefixes))
    foreign = (key for sink_type in types for key in sink_type.foreign_keys)
    allowed = AllowedKeys(
        "sink",
        "docs/reference/options.md",
        tuple(name for option in options for name in option.names),
        tuple(prefix.name for prefix in prefixes),
        foreign=(
            *FOREIGN_KEYS,
            ForeignKeys("", frozenset({CONNECTOR_CLASS.name})),
            CONVERTERS,
            *iceberg_kafka_connect.FOREIGN_KEYS,
            maintenance.FOREIGN_KEYS,
            *foreign,
        ),
        others=SOURCE_KEYS,
        meant=MEANT,
        catalog=SINK_CATALOG.rest.name,
        other_todo="a file with connector.class=IcebergSource is a source's, which has it",
    )
    return SinkOptions(options, prefixes, allowed)


def _distinct(options: Iterable[Option[object]]) -> tuple[Option[object], ...]:
    by_name: dict[str, Option[object]] = {}
    for option in options:
        by_name.setdefault(option.name, option)
    return tuple(by_name.values())
