"""bytes -> blocks: the seam of the wire formats; a format is one class that decodes an array of messages."""

from __future__ import annotations

from typing import Literal, Protocol

import pyarrow as pa

from serde.avro.converter import AvroConverter
from serde.avro.schema_source import FetchSchema
from serde.faults import Stage
from serde.json.converter import JsonConverter
from serde.messages import DecodedMessages
from serde.plain import PlainConverter

Format = Literal["auto", "json", "json-schema", "avro", "string", "bytes"]


class Converter(Protocol):
    """Decodes keys or values of one format."""

    def decode(
        self, data: pa.Array | pa.ChunkedArray, stage: Stage, expected: pa.StructType | None = None
    ) -> DecodedMessages:
        """Decodes an array of messages (binary or string, large or not, sliced or not; null is a tombstone).

        expected: columns of the row where they are known (a flattened event's, or an envelope's images), for messages
        without schema: a text column takes numbers and booleans as their text, other values of another kind are faults.
        Every row ends in exactly one of a block, the tombstones or the faults; no message ever raises.
        """


def make_converter(
    fmt: Format,
    wanted: frozenset[str] | None = None,
    fetch: FetchSchema | None = None,
    words: frozenset[str] = frozenset(),
) -> Converter:
    """The converter of a format: json (payload only), json-schema ({"schema","payload"}), auto (either, told per
    message), avro (Confluent's frame), string and bytes (one column).

    wanted: fields of envelopes outside the images that will be looked at (`Unwrap.wanted`), None for all. With a schema
    the others are not read, which saves about a fifth of the time.
    words: columns whose dates and times become text (`connect.iso_text`).
    fetch: writer schemas by id; avro needs it (ValueError). What it raises besides UnknownSchema leaves `decode`.
    """
    match fmt:
        case "avro":
            if fetch is None:
                raise ValueError("Avro needs a registry")
            return AvroConverter(fetch, wanted, words)
        case "string" | "bytes":
            return PlainConverter(fmt == "string")
        case _:
            return JsonConverter(fmt, wanted, words)
