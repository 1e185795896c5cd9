"""files, overrides -> SourceSettings: everything the source has to know, or one ConfigError with every fault.

A file is a source's when `connector.class` (or `debezium.source.connector.class`) names an Iceberg source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from connector.settings.configdef import property_files, unknown_keys
from connector.settings.configdef.loader import read
from connector.settings.configdef.option import Option, names_of
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import Reading
from connector.settings.configdef.value_types import TEXT, one_of
from connector.settings.iceberg import catalog
from connector.settings.kafka import error_handling as errors
from connector.settings.kafka import kafka
from connector.settings.kafka.error_handling import ErrorSettings
from connector.settings.opensearch import sink as search
from connector.settings.sink import options
from connector.settings.sink.options import SPARK, ScopeOfOptions
from connector.settings.source import capture
from connector.settings.source import event_output as outgoing

CLASS = "io.debezium.connector.iceberg.IcebergConnector"
_CLASS = re.compile(r"(?:[\w.]*\.)?Iceberg(?:Source)?(?:Connector)?", re.IGNORECASE)
_DEBEZIUM = "debezium.source."

CONNECTOR_CLASS = Option(
    name="connector.class",
    kind=TEXT,
    default=CLASS,
    importance="high",
    doc=f"Makes a file a source's: {CLASS}, or IcebergSource for short.",
)
SINK_TYPE = Option(
    name="debezium.sink.type",
    kind=one_of("kafka", "opensearch"),
    default="kafka",
    importance="high",
    doc="Where changes go: kafka, as events; opensearch, as documents, with no Kafka between.",
)
NAME = attrs.evolve(
    options.NAME, doc="Name of this source; its positions are stored under it, so keep it. Two sources need two names."
)
_RETRIES = (errors.RETRY_TIMEOUT, errors.RETRY_DELAY_MAX)
SCOPES = (
    ScopeOfOptions("The source", (NAME, CONNECTOR_CLASS, SINK_TYPE)),
    ScopeOfOptions(
        "Kafka",
        (kafka.BOOTSTRAP_SERVERS, kafka.SECURITY_PROTOCOL),
        (
            *kafka.SECURITY,
            attrs.evolve(kafka.PRODUCER, doc="Any setting of the Java producer that publishes the events."),
            kafka.ADMIN_OVERRIDE,
            kafka.ADMIN,
        ),
    ),
    ScopeOfOptions("Catalog", catalog.SOURCE.all, (catalog.SOURCE.rest,)),
    ScopeOfOptions("What is read", capture.OPTIONS),
    ScopeOfOptions("Events and topics", outgoing.OPTIONS, outgoing.PREFIXES),
    ScopeOfOptions("OpenSearch", search.OF_SOURCE),
    ScopeOfOptions("Errors", _RETRIES),
    ScopeOfOptions("Spark", (), (SPARK,)),
)
OPTIONS = tuple(option for scope in SCOPES for option in scope.options)
PREFIXES = tuple(prefix for scope in SCOPES for prefix in scope.prefixes)
NAMES = tuple(name for option in (*OPTIONS, *outgoing.FORMATS) for name in option.names)
KNOWN = unknown_keys.Known(
    "source", "docs/reference/source-options.md", NAMES, tuple(prefix.name for prefix in PREFIXES)
)


@attrs.frozen
class SourceSettings:
    """All settings of a source; `notes` are to be logged once at start. No representation shows a passed-on value.

    `search`: changes go to OpenSearch, and there need be no Kafka.
    """

    name: str
    kafka: kafka.KafkaSettings
    catalog: catalog.CatalogSettings
    capture: capture.CaptureSettings
    outgoing: outgoing.OutgoingSettings
    errors: ErrorSettings
    spark: Mapping[str, str] = attrs.field(repr=names_of)
    notes: tuple[str, ...]
    search: search.SearchSettings | None = None


def is_source(files: Sequence[Path], overrides: Mapping[str, str] | None = None) -> bool:
    """Whether the files configure a source: the last `connector.class` among them names an Iceberg source."""
    given = adopted(property_files.layered(files, overrides or {})[0])
    entry = given.get(CONNECTOR_CLASS.name)
    return entry is not None and _CLASS.fullmatch(entry.text) is not None


def load(
    files: Sequence[Path],
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> SourceSettings:
    """Read properties files, the later over the earlier, and the overrides over all of them.

    `environ` answers `${env:NAME}`, the process's environment by default. Raises ConfigError with one line per fault.
    """
    return read(files, overrides, environ, adopted=adopted, names=NAMES, prefixes=PREFIXES, build=_build)


def adopted(given: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries under the names they have here: Debezium Server's `debezium.source.` and the sink's catalog prefix.

    So one catalog file serves source and sink. An entry keeps the key it was written with, for messages; of two that
    come to the same name the later layer wins.
    """
    renamed: dict[str, Entry] = {}
    for key, entry in sorted(given.items(), key=lambda item: item[1].layer):
        name = key.removeprefix(_DEBEZIUM)
        if name.startswith(catalog.SINK.rest.name):
            name = catalog.SOURCE.rest.name + name.removeprefix(catalog.SINK.rest.name)
        renamed[name] = entry
    return renamed


def _build(reading: Reading) -> SourceSettings:
    KNOWN.check(reading)
    name = reading.get(NAME)
    for option in outgoing.FORMATS:
        reading.get(option)
    searching = reading.get(SINK_TYPE) == "opensearch"
    if not searching:
        search.check_absent(reading)
    return SourceSettings(
        name=name,
        kafka=kafka.build_producing(reading, needed=not searching),
        catalog=catalog.build(reading, catalog.SOURCE),
        capture=capture.build(reading),
        outgoing=outgoing.build(reading),
        errors=errors.build(reading, name),
        spark={SPARK.name + key: text for key, text in reading.under(SPARK).items()},
        notes=tuple(reading.notes),
        search=search.build(reading) if searching else None,
    )
