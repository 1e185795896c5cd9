"""The port of the wire formats: bytes -> decoded messages, and columns of events -> bytes.

A format is one `WireFormat`. It lives in a package of its own (or a module) and has one line in `formats.FORMATS`;
settings, readers and writers look everything up there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from attrs import frozen

from serde.arrays import Ints
from serde.emit.connect_schema import Document
from serde.faults import Stage
from serde.frames import ConfluentFrame, Frame
from serde.messages import DecodedMessages

SchemaTexts: TypeAlias = tuple[str, ...]
"""A writer schema: the texts of the schemas that it refers to, in order, then its own."""

FetchSchema: TypeAlias = Callable[[int], SchemaTexts]
"""Returns the writer schema of an id. Raises UnknownSchema; any other error (the registry is away) goes
through the deserializer to its caller: no message is at fault then.
"""

AFTER, BEFORE, FIRST_OF_TWO, SECOND_OF_TWO, TOMBSTONE = range(5)
"""What a row of `EnvelopeSerializer.messages` holds: the only image of a record, the image before, then that after; or
none, for a tombstone."""


class UnknownSchema(LookupError):
    """The registry answers, and has no schema of this id and type; the text says why, without content."""


class Deserializer(Protocol):
    """Decodes keys or values of one format."""

    def decode(
        self,
        data: pa.Array | pa.ChunkedArray,
        stage: Stage,
        expected: pa.StructType | None = None,
        text_columns: frozenset[str] = frozenset(),
    ) -> DecodedMessages:
        """Decode an array of messages (binary or string, large or not, sliced or not; null is a tombstone).

        expected: columns of the row where they are known (a flattened event's, or an envelope's images), for messages
        without schema: a text column takes numbers and booleans as their text, other values of another kind are faults.
        text_columns: more of what `ReadOptions.text_columns` names, for these messages.
        Every row ends in exactly one of a block, the tombstones or the faults; no message ever raises.
        """


@frozen
class ReadOptions:
    """What a deserializer is made with.

    wanted: fields of envelopes outside the images that will be looked at (`UnwrapSettings.wanted`), None for all. With
    a schema the others are not read, which saves about a fifth of the time.
    fetch: writer schemas by id; formats that need a registry raise ValueError without it.
    text_columns: columns, or types by their schema name, whose dates and times become text (`connect.text_columns`);
    number_columns: columns whose decimals do; frame: what a registry's serializers put in front of messages.
    any_case: the columns that are expected may have their names in other letters.
    """

    wanted: frozenset[str] | None = None
    fetch: FetchSchema | None = None
    text_columns: frozenset[str] = frozenset()
    number_columns: frozenset[str] = frozenset()
    frame: Frame = ConfluentFrame()
    any_case: bool = False


class EnvelopeSerializer(Protocol):
    """Writes envelopes from rows that hold one image each."""

    def messages(self, images: Sequence[pa.Array], kinds: Ints, orders: pa.Array | None) -> pa.BinaryArray:
        """Write a message for each row that is the last of its record, null for a tombstone.

        images: columns of the row, in order; kinds: what each row holds; orders: `total_order` of each row.
        Raises Unfit: a value that its schema has not.
        """


class ColumnSerializer(Protocol):
    """Writes columns of one side of records, key or value, as messages. Pickled to the workers."""

    def messages(self, columns: Sequence[pa.Array], count: int) -> pa.BinaryArray:
        """Write `count` rows; columns are the schema's fields in order. Raises Unfit: a value its schema has not."""

    def envelopes(self, *, reads: bool, transaction: str) -> EnvelopeSerializer:
        """Return the writer of values. `reads`: a row that comes alone was read, else created; `transaction` is the
        id in numbered events.
        """


class Serializer(Protocol):
    """Writes one side of the records of one topic."""

    @property
    def columns(self) -> ColumnSerializer | None:
        """How workers write whole columns; None for JSON, which Spark writes itself."""

    def message(self, payload: Mapping[str, Any]) -> bytes:
        """Write a single message."""


@frozen
class SubjectSchema:
    """A schema as a registry keeps it: its text, and the full name of its record."""

    text: str
    record: str


class SerializerFactory(Protocol):
    """How a format becomes the serializer of one schema, on the driver, once per schema."""

    def subject_schema(self, document: Document) -> SubjectSchema | None:
        """Return what is registered for a Connect schema, None where nothing is.

        Raises ValueError: the schema cannot be written in this format.
        """

    def build(self, document: Document, schema_id: int | None, constant: Mapping[str, Any]) -> Serializer:
        """Return the serializer of a Connect schema.

        schema_id: the registry's, where `subject_schema` said something; constant: fields with one value in all
        records.
        """


@frozen
class WireFormat:
    """One wire format.

    name: as settings hold it; converter_classes: Kafka Connect's converters that mean it, full names;
    registry_type: its `schemaType` in a schema registry, None where messages need no registry;
    without_schemas: the name of the format that `schemas.enable=false` makes of it, None where that changes nothing.
    """

    name: str
    converter_classes: tuple[str, ...]
    deserializer: Callable[[ReadOptions], Deserializer]
    serializer: SerializerFactory | None = None
    registry_type: str | None = None
    without_schemas: str | None = None

    @property
    def needs_registry(self) -> bool:
        """True where messages name their schema by its id in a registry."""
        return self.registry_type is not None
