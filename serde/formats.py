"""name of a format -> how it is read and written: the registry of the wire formats.

Another format is a package with its `WireFormat`, and a line here.
"""

from __future__ import annotations

from collections.abc import Mapping

from serde.avro.format import AVRO
from serde.json.format import AUTO, JSON, JSON_SCHEMA, REGISTERED_JSON
from serde.plain import BYTES, STRING
from serde.protobuf.format import PROTOBUF
from serde.wire_format import Deserializer, FetchSchema, ReadOptions, WireFormat

FORMATS: Mapping[str, WireFormat] = {
    wire_format.name: wire_format
    for wire_format in (JSON_SCHEMA, AVRO, PROTOBUF, REGISTERED_JSON, STRING, BYTES, JSON, AUTO)
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
