"""files, overrides -> SourceSettings: everything the source has to know, or one ConfigError with every fault.

A file is a source's when `connector.class` (or `debezium.source.connector.class`) names an Iceberg source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from connector.settings import connector_class, lineage, server
from connector.settings.configdef import common, property_files
from connector.settings.configdef.common import FOREIGN_KEYS, SPARK_PREFIX, OptionScope
from connector.settings.configdef.loader import load_settings
from connector.settings.configdef.option import Option, format_names
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.spark_settings import read_spark
from connector.settings.configdef.unknown_keys import AllowedKeys
from connector.settings.configdef.value_types import one_of
from connector.settings.connector_class import CONNECTOR_CLASS
from connector.settings.iceberg import catalog, iceberg_kafka_connect
from connector.settings.iceberg.catalog import CatalogSettings
from connector.settings.kafka import error_handling, kafka
from connector.settings.kafka.error_handling import ErrorSettings
from connector.settings.kafka.kafka import KafkaSettings
from connector.settings.lineage import LineageSettings
from connector.settings.opensearch import aiven, documents
from connector.settings.server import ServerSettings
from connector.settings.source import capture, event_output, other_names, signals
from connector.settings.source.capture import CaptureSettings
from connector.settings.source.event_output import EventOutputSettings
from connector.settings.source.signals import NotificationSettings, SignalSettings

_DEBEZIUM = "debezium.source."
_SPECULATION = "spark.speculation"

SINK_TYPE = Option(
    name="debezium.sink.type",
    kind=one_of("kafka", "opensearch"),
    default="kafka",
    importance="high",
    doc="Where changes are published: kafka, as events; opensearch, as documents, without Kafka.",
)
NAME = attrs.evolve(
    common.NAME,
    doc="Name of this source; its offsets are stored under it: do not change it. Two sources need two names.",
)
_RETRIES = (error_handling.RETRY_TIMEOUT, error_handling.RETRY_DELAY_MAX)
SCOPES = (
    OptionScope("The source", (NAME, CONNECTOR_CLASS, SINK_TYPE)),
    OptionScope(
        "Kafka",
        (kafka.BOOTSTRAP_SERVERS, kafka.SECURITY_PROTOCOL),
        (
            *kafka.SECURITY,
            attrs.evolve(kafka.PRODUCER, doc="Any setting of the Java producer that publishes the events."),
            kafka.ADMIN_OVERRIDE,
            kafka.ADMIN,
        ),
    ),
    OptionScope("Catalog", catalog.SOURCE_CATALOG.all, (catalog.SOURCE_CATALOG.rest,)),
    OptionScope("What is read", capture.OPTIONS),
    OptionScope("Events and topics", event_output.OPTIONS, event_output.PREFIXES),
    OptionScope("OpenSearch", documents.SOURCE_OPTIONS),
    OptionScope("Signals and notifications", signals.OPTIONS, signals.PREFIXES),
    OptionScope("Errors", _RETRIES),
    OptionScope("Lineage", lineage.OPTIONS),
    OptionScope("Monitoring and REST", server.OPTIONS),
    OptionScope("Spark", (), (SPARK_PREFIX,)),
)
OPTIONS = tuple(option for scope in SCOPES for option in scope.options)
PREFIXES = tuple(prefix for scope in SCOPES for prefix in scope.prefixes)
NAMES = tuple(name for option in (*OPTIONS, *event_output.ACCEPTED_FORMATS) for name in option.names)
ALLOWED_KEYS = AllowedKeys(
    "source",
    "docs/reference/source-options.md",
    NAMES,
    tuple(prefix.name for prefix in PREFIXES),
    foreign=(
        *FOREIGN_KEYS,
        *iceberg_kafka_connect.FOREIGN_KEYS,
        *aiven.FOREIGN_KEYS,
        other_names.TUNING,
        other_names.REFUSED,
    ),
    meant=other_names.MEANT,
    catalog=catalog.SOURCE_CATALOG.rest.name,
)


@attrs.frozen
class SourceSettings:
    """All settings of a source; `notes` are to be logged once at start. No representation shows a passed-on value.

    `sink_type` is `debezium.sink.type`, and `destination` what its publisher has to know: `OpenSearchSettings`, and
    then there need be no Kafka.
    """

    name: str
    kafka: KafkaSettings
    catalog: CatalogSettings
    capture: CaptureSettings
    outgoing: EventOutputSettings
    errors: ErrorSettings
    spark: Mapping[str, str] = attrs.field(repr=format_names)
    notes: tuple[str, ...]
    sink_type: str = "kafka"
    destination: object = None
    signals: SignalSettings = SignalSettings()
    notifications: NotificationSettings = NotificationSettings()
    lineage: LineageSettings = LineageSettings()
    server: ServerSettings = attrs.field(factory=ServerSettings)


def is_source(files: Sequence[Path], overrides: Mapping[str, str] | None = None) -> bool:
    """Whether the files configure a source: the last `connector.class` among them names an Iceberg source.

    One that does so with a slip counts, so that the slip is told beside what else is wrong with a source's file.
    """
    return connector_class.is_of_source(rename_entries(property_files.merge_files(files, overrides or {}).entries))


def load_source(
    files: Sequence[Path],
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> SourceSettings:
    """Read properties files, the later over the earlier, and the overrides over all of them.

    `environ` answers `${env:NAME}`, the process's environment by default. Raises ConfigError with one line per fault.
    """
    return load_settings(files, overrides, environ, rename=rename_entries, names=NAMES, prefixes=PREFIXES, build=_build)


def rename_entries(given: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries under the names they have here: Debezium Server's `debezium.source.` and the sink's catalog prefix.

    So one catalog file serves source and sink. An entry keeps the key it was written with, for messages; of two that
    come to the same name the later layer wins.
    """
    renamed: dict[str, Entry] = {}
    for key, entry in sorted(given.items(), key=lambda item: item[1].layer):
        renamed[_rename_key(key)] = entry
    return renamed


def is_source_key(key: str) -> bool:
    """Tell whether a key means something in a source's file, be it that of another program."""
    return ALLOWED_KEYS.knows(_rename_key(key))


def _rename_key(key: str) -> str:
    if key in NAMES:
        return key
    name = key.removeprefix(_DEBEZIUM)
    if name.startswith(catalog.SINK_CATALOG.rest.name):
        return catalog.SOURCE_CATALOG.rest.name + name.removeprefix(catalog.SINK_CATALOG.rest.name)
    return name


def _build(reader: ConfigReader) -> SourceSettings:
    connector_class.check(reader)
    ALLOWED_KEYS.check(reader)
    other_names.check(reader)
    name = reader.get(NAME)
    for option in event_output.ACCEPTED_FORMATS:
        reader.get(option)
    sink_type = reader.get(SINK_TYPE)
    searching = sink_type == "opensearch"
    if not searching:
        documents.check_absent(reader)
    _refuse_speculation(reader)
    brokers = kafka.build_producing(reader, needed=not searching)
    signalled = signals.build(reader, brokers)
    notified = signals.build_notifications(reader, brokers)
    return SourceSettings(
        name=name,
        kafka=brokers,
        catalog=catalog.build(reader, catalog.SOURCE_CATALOG),
        capture=capture.build(reader),
        outgoing=event_output.build(reader),
        errors=error_handling.build(reader, name),
        spark=read_spark(reader),
        notes=tuple(reader.notes),
        sink_type=sink_type,
        destination=documents.build(reader) if searching else None,
        signals=signalled,
        notifications=notified,
        lineage=lineage.build(reader),
        server=server.build(reader),
    )


def _refuse_speculation(reader: ConfigReader) -> None:
    entry = reader.entries.get(_SPECULATION)
    if entry is not None and (reader.text(entry, literal=True) or "").lower() == "true":
        what = "lets two copies of a task publish, one of which may repeat events after later ones"
        reader.add_fault(entry, what, "remove it")
