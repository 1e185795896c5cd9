"""name of a format -> how it is read and written: the registry of the wire formats.

Another format is a package with its `WireFormat`, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from attrs import evolve

from serde.avro.format import AVRO
from serde.event_data import CloudEventsDeserializer
from serde.json.format import AUTO, JSON, JSON_SCHEMA, REGISTERED_JSON
from serde.plain import BYTES, STRING
from serde.protobuf.format import PROTOBUF
from serde.wire_format import Deserializer, FetchSchema, ReadOptions, WireFormat


def _read_cloud_events(events: WireFormat, options: ReadOptions) -> Deserializer:
    """Return the deserializer of a format whose events may be CloudEvents with data of another one."""
    encoded = None if options.fetch is None else AVRO.deserializer(options)
    if events is AVRO:
        return CloudEventsDeserializer(AVRO.deserializer(options), encoded=encoded)
    every = evolve(options, wanted=None)
    apart = (JSON.deserializer(every), JSON_SCHEMA.deserializer(every))
    return CloudEventsDeserializer(events.deserializer(options), *apart, encoded)


def _with_cloud_events(events: WireFormat) -> WireFormat:
    return evolve(events, deserializer=partial(_read_cloud_events, events))


def _read_avro_data(options: ReadOptions) -> Deserializer:
    if options.fetch is None:
        raise ValueError("Avro needs a registry")
    return _read_cloud_events(AUTO, options)


CLOUD_EVENTS_CLASS = "io.debezium.converters.CloudEventsConverter"
CLOUD_EVENTS_OF_AVRO = WireFormat("cloudevents-avro", (), _read_avro_data, registry_type=AVRO.registry_type)
"""CloudEvents in JSON whose data is Avro."""

FORMATS: Mapping[str, WireFormat] = {
    wire_format.name: wire_format
    for wire_format in (
        JSON_SCHEMA,
        _with_cloud_events(AVRO),
        PROTOBUF,
        REGISTERED_JSON,
        STRING,
        BYTES,
        _with_cloud_events(JSON),
        _with_cloud_events(AUTO),
        CLOUD_EVENTS_OF_AVRO,
    )
}


def make_deserializer(
    name: str,
    wanted: frozenset[str] | None = None,
    fetch: FetchSchema | None = None,
    text_columns: frozenset[str] = frozenset(),
    number_columns: frozenset[str] = frozenset(),
) -> Deserializer:
    """Return the deserializer of a format; see `wire_format.ReadOptions`.

    Raises KeyError for an unknown format, ValueError for one that needs a registry without `fetch`.
    """
    return FORMATS[name].deserializer(ReadOptions(wanted, fetch, text_columns, number_columns))
