"""settings -> the registry that has the schemas, whoever made it."""

from __future__ import annotations

from connector.kafka.registry.apicurio import ApicurioRegistry, apicurio_registry_for
from connector.kafka.registry.confluent import SchemaRegistry, schema_registry_for
from connector.kafka.registry.glue import GlueRegistry, glue_registry_for
from connector.settings.converters.apicurio import ApicurioSettings
from connector.settings.converters.glue import GlueSettings
from connector.settings.converters.message_format import AnyRegistry


def open_registry(settings: AnyRegistry) -> SchemaRegistry | ApicurioRegistry | GlueRegistry:
    """Return the registry of these settings, one per process; nothing is asked yet."""
    if isinstance(settings, ApicurioSettings):
        return apicurio_registry_for(settings)
    return glue_registry_for(settings) if isinstance(settings, GlueSettings) else schema_registry_for(settings)
