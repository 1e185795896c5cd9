"""librdkafka's messages -> columns of records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from connector.kafka.consumer.records.header_bytes import encode_headers
from connector.kafka.consumer.records.record_columns import RecordColumns


def to_columns(messages: Sequence[Message]) -> RecordColumns:
    """Return messages that follow each other as columns."""
    keys = pa.array([_to_bytes(message.key()) for message in messages], pa.binary())
    values = pa.array([_to_bytes(message.value()) for message in messages], pa.binary())
    data, headers, ends = encode_headers([message.headers() for message in messages])
    offsets = np.array([message.offset() for message in messages], np.int64)
    return RecordColumns(offsets, keys, values, data, headers, ends)


def _to_bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
