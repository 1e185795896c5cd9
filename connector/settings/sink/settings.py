"""files, overrides -> SinkSettings: everything the sink has to know, or one ConfigError with every fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from connector.settings.configdef import unknown_keys
from connector.settings.configdef.loader import load_settings
from connector.settings.configdef.option import format_names
from connector.settings.configdef.reader import ConfigReader
from connector.settings.converters import event_format as events
from connector.settings.iceberg import catalog, iceberg_kafka_connect
from connector.settings.iceberg import tables as table
from connector.settings.kafka import batching as batch
from connector.settings.kafka import error_handling as errors
from connector.settings.kafka import kafka
from connector.settings.opensearch import data_streams
from connector.settings.opensearch import sink as search
from connector.settings.sink.options import NAME, NAMES, PREFIXES, SINK_TYPE, SPARK_PREFIX
from connector.settings.source import capture

ALLOWED_KEYS = unknown_keys.AllowedKeys(
    "sink",
    "docs/reference/options.md",
    NAMES,
    tuple(prefix.name for prefix in PREFIXES),
    others=frozenset(option.name for option in capture.OPTIONS),
    other_todo="a file with connector.class=IcebergSource is a source's, which has it",
)


@attrs.frozen
class SinkSettings:
    """All settings of a sink; `notes` are to be logged once at start. No representation shows a passed-on value.

    `events_only`: every event is kept as text in one table (`icebergevents`). `search`: events become documents of
    OpenSearch; the catalog then holds nothing but the offsets.
    """

    name: str
    kafka: kafka.KafkaSettings
    catalog: catalog.CatalogSettings
    table: table.TableSettings
    events: events.EventSettings
    errors: errors.ErrorSettings
    batch: batch.BatchSettings
    spark: Mapping[str, str] = attrs.field(repr=format_names)
    notes: tuple[str, ...]
    events_only: bool = False
    search: search.OpenSearchSettings | None = None


def load(
    files: Sequence[Path],
    overrides: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> SinkSettings:
    """Read properties files, the later over the earlier, and the overrides over all of them.

    `environ` answers `${env:NAME}`, the process's environment by default. Raises ConfigError with one line per fault.
    """
    return load_settings(
        files, overrides, environ, adopted=events.rename_unwrap, names=NAMES, prefixes=PREFIXES, build=_build
    )


def _build(reading: ConfigReader) -> SinkSettings:
    events_only = reading.get(SINK_TYPE) == "icebergevents"
    ALLOWED_KEYS.check(reading)
    iceberg_kafka_connect.check(reading)
    name = reading.get(NAME)
    failures = errors.build(reading, name)
    searching = reading.get(SINK_TYPE) == "opensearch" or search.is_opensearch_sink(reading.entries)
    tables = table.build(reading, searching=searching)
    searched = search.build(reading) if searching else None
    if searched is None:
        search.check_absent(reading)
    else:
        data_streams.check(
            reading, searched.series, upsert=tables.upsert and not searched.key_ignore, partial=searched.partial
        )
    return SinkSettings(
        name=name,
        kafka=kafka.build(reading, name, failures.topic),
        catalog=catalog.build(reading),
        table=attrs.evolve(tables, upsert=False, routes=None) if events_only else tables,
        events=events.build(reading),
        errors=failures,
        batch=batch.build(reading),
        spark={SPARK_PREFIX.name + key: text for key, text in reading.under(SPARK_PREFIX).items()},
        notes=tuple(reading.notes),
        events_only=events_only,
        search=searched,
    )
