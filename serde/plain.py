"""text or bytes -> blocks: StringConverter, ByteArrayConverter and BinaryDataConverter, one column per message.

Such a message has no fields: it becomes a row of one column, `key` or `value` by its side of the record.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from serde.arrays import Mask
from serde.byte_windows import ByteWindows, byte_windows, window_array
from serde.connect.primitive_keys import key_field_name
from serde.faults import RecordError, Stage
from serde.messages import DecodedMessages, MessageBlock, Rows
from serde.wire_format import WireFormat


@frozen
class PlainDeserializer:
    """Hands each message on as it is: text (UTF-8) or bytes."""

    text: bool

    def decode(
        self,
        data: pa.Array | pa.ChunkedArray,
        stage: Stage,
        expected: pa.StructType | None = None,
        text_columns: frozenset[str] = frozenset(),  # noqa: ARG002 - texts have no types
    ) -> DecodedMessages:
        """See `wire_format.Deserializer.decode`; a key of a table with one identifier field has that field's name."""
        texts, nulls = byte_windows(data)
        rows = np.flatnonzero(~nulls)
        column, wrong = self._column(texts.pick(rows))
        faults = tuple(RecordError(int(row), stage, "not UTF-8") for row in rows[wrong])
        keep = np.ones(len(rows), np.bool_)
        keep[wrong] = False
        fields = pa.StructArray.from_arrays([column], [_column_name(stage, expected)]).filter(pa.array(keep))
        block = MessageBlock(rows[keep], fields, "", None, {})
        return DecodedMessages((block,) if len(block.rows) else (), np.flatnonzero(nulls), faults)

    def _column(self, texts: ByteWindows) -> tuple[pa.Array, Rows]:
        none = np.zeros(0, np.int64)
        if not len(texts):
            return pa.array([], pa.string() if self.text else pa.binary()), none
        data = window_array(texts.data, texts.starts, texts.ends)
        if not self.text:
            return data, none
        text, wrong = decode_text(data)
        return text, np.flatnonzero(wrong)


def decode_text(data: pa.Array) -> tuple[pa.StringArray, Mask]:
    """Return bytes as text, null where they are not UTF-8, and a mask of those."""
    try:
        return data.cast(pa.string()), np.zeros(len(data), np.bool_)
    except pa.ArrowInvalid:
        good = [value is None or _is_text(value) for value in data.to_pylist()]
        kept = pc.if_else(pa.array(good), data, pa.scalar(None, data.type))
        return kept.cast(pa.string()), ~np.array(good, np.bool_)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _column_name(stage: Stage, expected: pa.StructType | None) -> str:
    return key_field_name(expected) if stage == "KEY_CONVERTER" else "value"


STRING = WireFormat(
    "string", ("org.apache.kafka.connect.storage.StringConverter",), lambda _: PlainDeserializer(text=True)
)
BYTES = WireFormat(
    "bytes",
    (
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        "io.debezium.converters.BinaryDataConverter",
        # Its names of before.
        "io.debezium.converters.ByteArrayConverter",
        "io.debezium.converters.ByteBufferConverter",
    ),
    lambda _: PlainDeserializer(text=False),
)
