"""properties files -> frozen settings; `load` is the way in, the modules by scope declare the options."""

from connector.settings.batch import BatchSettings
from connector.settings.catalog import CatalogSettings
from connector.settings.errors import ErrorSettings
from connector.settings.events import EventSettings
from connector.settings.kafka import KafkaSettings
from connector.settings.registry import RegistrySettings
from connector.settings.sink import SinkSettings, load
from connector.settings.source import SourceSettings
from connector.settings.table import TableSettings

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
