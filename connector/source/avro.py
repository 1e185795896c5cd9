"""Keys and values as columns -> Avro messages, batch by batch. On executors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from serde.emit.datums import Avro, Framer


def written(records: DataFrame, sides: Mapping[str, Avro]) -> DataFrame:
    """Give the records with some columns, structs in the order of their schema's fields, as messages."""
    if not sides:
        return records
    fields = [
        StructField(field.name, BinaryType() if field.name in sides else field.dataType)
        for field in records.schema.fields
    ]
    return records.mapInArrow(partial(_messages, sides=dict(sides)), StructType(fields))


def _messages(batches: Iterator[pa.RecordBatch], sides: dict[str, Avro]) -> Iterator[pa.RecordBatch]:
    framers = {name: Framer(avro) for name, avro in sides.items()}
    for batch in batches:
        names = batch.schema.names
        columns = [
            framers[name].messages(column) if name in framers else column
            for name, column in zip(names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=names)
