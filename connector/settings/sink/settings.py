"""files, overrides -> SinkSettings: everything the sink has to know, or one ConfigError with every fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs

from connector.errors import ConfigError
from connector.redaction import redact
from connector.settings import connector_class, lineage, server
from connector.settings.configdef.common import NAME
from connector.settings.configdef.loader import load_settings
from connector.settings.configdef.option import Option, format_names
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.spark_settings import read_spark
from connector.settings.configdef.unknown_keys import AllowedKeys
from connector.settings.converters import event_format, message_format
from connector.settings.converters.event_format import EventSettings
from connector.settings.iceberg import catalog, iceberg_kafka_connect
from connector.settings.iceberg.catalog import CatalogSettings
from connector.settings.iceberg.iceberg_kafka_connect import ControlTopic
from connector.settings.iceberg.maintenance import policies
from connector.settings.iceberg.tables import SCHEMA_CHANGE_TOPICS, TableSettings
from connector.settings.kafka import batching, error_handling, kafka, transactions
from connector.settings.kafka.batching import BatchSettings
from connector.settings.kafka.error_handling import ErrorSettings
from connector.settings.kafka.kafka import KafkaSettings
from connector.settings.lineage import LineageSettings
from connector.settings.server import ServerSettings
from connector.settings.sink.options import collect_options
from connector.settings.sink.sink_types import find_sink_type, load_sink_type


@attrs.frozen
class SinkSettings:
    """All settings of a sink; `notes` are to be logged once at start. No representation shows a passed-on value.

    `destination` is what the sink's type has to know beside `table`, see `sink_types`. For a destination other than
    Iceberg tables the catalog holds nothing but the offsets. `control` is of a file of Iceberg Kafka Connect, which
    may have left commits there.
    """

    name: str
    sink_type: str
    kafka: KafkaSettings
    catalog: CatalogSettings
    table: TableSettings
    events: EventSettings
    errors: ErrorSettings
    batch: BatchSettings
    spark: Mapping[str, str] = attrs.field(repr=format_names)
    notes: tuple[str, ...]
    destination: object = None
    lineage: LineageSettings = LineageSettings()
    server: ServerSettings = attrs.field(factory=ServerSettings)
    control: ControlTopic | None = None


def load(
    files: Sequence[Path],
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> SinkSettings:
    """Read properties files, the later over the earlier, and the overrides over all of them.

    `environ` answers `${env:NAME}`, the process's environment by default. Raises ConfigError with one line per fault.
    """
    options = collect_options()
    return load_settings(
        files,
        overrides,
        environ,
        rename=rename_entries,
        names=options.names,
        prefixes=options.prefixes,
        build=partial(_build, allowed=options.allowed),
    )


def rename_entries(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries under the names they have here: Iceberg Kafka Connect's, the unwrap transform's, Flink's."""
    return event_format.rename_unwrap(iceberg_kafka_connect.rename_entries(policies.rename_entries(entries)))


_BESIDE_CHANGES: tuple[Option[object], ...] = (transactions.TOPIC, SCHEMA_CHANGE_TOPICS)
"""Topics of sources that tell of tables, and have no changes of rows."""


def _check_cloud_events(reader: ConfigReader) -> None:
    """Refuse to wait for what their converter does not write."""
    for option in _BESIDE_CHANGES if message_format.reads_cloud_events(reader) else ():
        if entry := reader.entry(option):
            what = "tells nothing: the CloudEventsConverter leaves out the values of what is no change of a row"
            reader.add_fault(entry, what, "take it out, or use another converter in the source")


def _build(reader: ConfigReader, *, allowed: AllowedKeys) -> SinkSettings:
    if not connector_class.check(reader):
        raise ConfigError(*(redact(fault.text) for fault in sorted(reader.faults)))
    allowed.check(reader)
    iceberg_kafka_connect.check(reader)
    _check_cloud_events(reader)
    name, sink_type = reader.get(NAME), find_sink_type(reader)
    errors = error_handling.build(reader, name)
    table, destination = load_sink_type(sink_type).build(reader)
    return SinkSettings(
        name=name,
        sink_type=sink_type,
        kafka=kafka.build(reader, name, errors.topic),
        catalog=catalog.build(reader),
        table=table,
        events=event_format.build(reader, nanoseconds=destination is not None or table.new_tables.has_nanoseconds),
        errors=errors,
        batch=batching.build(reader),
        spark=read_spark(reader),
        notes=tuple(reader.notes),
        destination=destination,
        lineage=lineage.build(reader),
        server=server.build(reader),
        control=iceberg_kafka_connect.read_control_topic(reader, name),
    )
