"""bytes -> blocks: the seam of the wire formats; a format is one class that decodes an array of messages."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from serde.block import Decoded
from serde.connect_json import JsonConverter
from serde.faults import Stage
from serde.framing import Format


class Converter(Protocol):
    """Decodes keys or values of one format."""

    def decode(self, data: pa.Array | pa.ChunkedArray, stage: Stage, expected: pa.StructType | None = None) -> Decoded:
        """Decodes an array of messages (binary or string, large or not, sliced or not; null is a tombstone).

        expected: columns of the row where they are known (a flattened event's, or an envelope's images), for messages
        without schema: a text column takes numbers and booleans as their text, other values of another kind are faults.
        Every row ends in exactly one of a block, the tombstones or the faults; no message ever raises.
        """


def converter(fmt: Format, wanted: frozenset[str] | None = None) -> Converter:
    """The converter of a format: json (payload only), json-schema ({"schema","payload"}), auto (told per message).

    wanted: fields of envelopes outside the images that will be looked at (`Unwrap.wanted`), None for all. With a schema
    block the others are not read, which saves about a fifth of the time.
    """
    return JsonConverter(fmt, wanted)
