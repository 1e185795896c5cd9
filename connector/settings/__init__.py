"""properties files -> frozen settings; `load` is the way in, the modules by scope declare the options."""

from connector.settings.converters.event_format import EventSettings
from connector.settings.converters.schema_registry import RegistrySettings
from connector.settings.iceberg.catalog import CatalogSettings
from connector.settings.iceberg.tables import TableSettings
from connector.settings.kafka.batching import BatchSettings
from connector.settings.kafka.error_handling import ErrorSettings
from connector.settings.kafka.kafka import KafkaSettings
from connector.settings.sink.settings import SinkSettings, load
from connector.settings.source.settings import SourceSettings

__all__ = [
    "BatchSettings",
    "CatalogSettings",
    "ErrorSettings",
    "EventSettings",
    "KafkaSettings",
    "RegistrySettings",
    "SinkSettings",
    "SourceSettings",
    "TableSettings",
    "load",
]
