"""properties -> GlueSettings: where the AWS Glue schema registry is, by the names of its own converters.

Source: AWS Glue Schema Registry library 1.1, `AWSSchemaRegistryConstants` (region, endpoint, assumeRoleArn).
"""

from __future__ import annotations

import importlib.util

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import TEXT

PACKAGE = "com.amazonaws.services.schemaregistry.kafkaconnect."


@attrs.frozen
class GlueOptions:
    """The options of one side, key or value."""

    region: Option[str | None]
    endpoint: Option[str | None]
    role: Option[str | None]
    session: Option[str]

    @property
    def all(self) -> tuple[Option[object], ...]:
        """Every option, in the order documents show them."""
        return (self.region, self.endpoint, self.role, self.session)


def declare_options(side: str) -> GlueOptions:
    """Declare the options of a side."""
    prefix = f"{side}.converter."
    return GlueOptions(
        region=Option(
            name=f"{prefix}region",
            kind=TEXT,
            default=None,
            importance="medium",
            doc=f"With AWS Glue's converters: region of the registry of the {side}s. Needs the extra icebridge[aws].",
        ),
        endpoint=Option(
            name=f"{prefix}endpoint",
            kind=TEXT,
            default=None,
            importance="low",
            doc=f"With AWS Glue's converters: URL of Glue for the {side}s, if it is not the region's.",
        ),
        role=Option(
            name=f"{prefix}assumeRoleArn",
            kind=TEXT,
            default=None,
            importance="low",
            doc=f"With AWS Glue's converters: role to assume for reading schemas of {side}s.",
        ),
        session=Option(
            name=f"{prefix}assumeRoleSessionName",
            kind=TEXT,
            default="kafka-connect-session",
            importance="low",
            doc="With assumeRoleArn: name of the session.",
        ),
    )


@attrs.frozen
class GlueSettings:
    """Where the registry is; credentials are those that AWS's own clients find."""

    region: str
    endpoint: str | None = None
    role: str | None = None
    session: str = "kafka-connect-session"


def build(reader: ConfigReader, options: GlueOptions, *, wanted: bool) -> GlueSettings | None:
    """Read a side's registry; faults go to the reader. None where its converter is another's."""
    region, endpoint = reader.get(options.region), reader.get(options.endpoint)
    role, session = reader.get(options.role), reader.get(options.session)
    if not wanted:
        return None
    if importlib.util.find_spec("botocore") is None:
        todo = "pip install 'icebridge[aws]'"
        reader.add_missing(options.region.name, "is of AWS Glue's registry, which needs the package botocore", todo)
    if region is None:
        if reader.entry(options.region) is None:
            reader.add_missing(options.region.name, "is missing, and AWS Glue's converters need it", "add the region")
        return None
    return GlueSettings(region, endpoint, role, session)
