"""Records whose headers name their schema -> the same with the id in front of key and value, as the frame has it.

Sources: Apicurio's headers of its ids; Confluent's `HeaderSchemaIdSerializer` (Platform 8), whose `__key_schema_id` and
`__value_schema_id` hold all that otherwise stands in front of a datum. Its readers take the header where there is one.
"""

from __future__ import annotations

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings import EventSettings
from connector.settings.converters.apicurio import ApicurioSettings
from connector.settings.converters.message_format import AnyRegistry
from connector.settings.converters.schema_registry import RegistrySettings
from connector.sink.convert.events.outbox import HEADERS as OUTBOX_HEADERS
from connector.sink.convert.events.outbox import find_aggregate_type

_MAGIC = pa.scalar(b"\0", pa.binary())
_NOTHING = pa.scalar(b"", pa.binary())


def find_wanted_headers(topic: str, events: EventSettings) -> tuple[str, ...]:
    """Return the headers that decoding the records of a topic needs; few topics need any."""
    outbox = OUTBOX_HEADERS if find_aggregate_type(topic, events.outbox_topics) is not None else ()
    headers = (_id_header(events.key_registry, "key"), _id_header(events.value_registry, "value"))
    return (*outbox, *(name for name in headers if name is not None))


def read_wanted_headers(run: ConsumerRecords, events: EventSettings) -> ConsumerRecords:
    """Read the headers that decoding the records needs, while the bytes that were fetched are there."""
    wanted = find_wanted_headers(run.topic, events)
    return run.with_named_headers(wanted) if wanted else run


def _id_header(registry: AnyRegistry | None, side: str) -> str | None:
    if isinstance(registry, RegistrySettings):
        return f"__{side}_schema_id"
    return registry.header if isinstance(registry, ApicurioSettings) else None


def frame_by_headers(run: ConsumerRecords, events: EventSettings) -> ConsumerRecords:
    """Return the records with a frame around what a header tells the schema of; the others as they are.

    Cost: a copy of the bytes, where ids are in headers.
    """
    key = _frame(run.key, run, events.key_registry, "key")
    value = _frame(run.value, run, events.value_registry, "value")
    return run if key is run.key and value is run.value else attrs.evolve(run, key=key, value=value)


def _frame(data: pa.Array, run: ConsumerRecords, registry: AnyRegistry | None, side: str) -> pa.Array:
    header = run.headers.get(_id_header(registry, side) or "")
    if header is None:
        return data
    if isinstance(registry, ApicurioSettings):
        usable, magic = pc.equal(pc.binary_length(header), registry.id_bytes), _MAGIC
    else:
        usable, magic = pc.greater(pc.binary_length(header), 0), _NOTHING
    usable, plain = usable.fill_null(False), data.cast(pa.binary())
    ids = pc.if_else(usable, header, _NOTHING).cast(pa.binary())
    return pc.if_else(usable, pc.binary_join_element_wise(magic, ids, plain, _NOTHING), plain)
