"""What pure steps are asked -> their answers: done once, and handed out again where all that they see is the same.

Decoding takes half of the time of a history, and histories of one script (`stories.make_story`) decode the same records
again and again. Answers are never changed by who gets them; their arrays of numbers refuse to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa

from connector.sink.convert import decoder
from connector.sink.convert.converters import Converters, find_converters
from connector.sink.convert.messages import change_reading, rows_before
from connector.sink.model.plan import BatchPlan
from serde.events.unwrapping import UnwrapSettings, extract_changes
from serde.faults import Stage
from serde.messages import DecodedMessages, MessageBlock
from serde.wire_format import Deserializer
from tests.simulation.answers import Answers
from tests.simulation.replacements import replaced

DECODED, CHANGED, READERS = Answers(), Answers(), Answers()


@attrs.frozen(eq=False)
class KnownDeserializer:
    """A deserializer that is asked once."""

    asked: Deserializer

    def decode(
        self,
        data: pa.Array | pa.ChunkedArray,
        stage: Stage,
        expected: pa.StructType | None = None,
        text_columns: frozenset[str] = frozenset(),
    ) -> DecodedMessages:
        """See `wire_format.Deserializer.decode`."""
        texts = tuple(data.to_pylist())
        plain = DECODED.of((None, texts), lambda: read_plain(texts))
        if plain is not None and _is_as_expected(plain, expected):
            return plain
        question = id(self.asked), stage, texts, expected, text_columns
        return DECODED.of(question, lambda: _frozen(self.asked.decode(data, stage, expected, text_columns)))


def read_plain(texts: Sequence[bytes | None]) -> DecodedMessages | None:
    """Read JSON objects of integers, texts and such objects as the product does, but quickly; None where there is more.

    They have no schema, as all messages of the simulated sources.
    """
    rows = np.array([at for at, text in enumerate(texts) if text is not None], np.int64)
    gone = np.array([at for at, text in enumerate(texts) if text is None], np.int64)
    try:
        documents = [orjson.loads(text) for text in texts if text is not None]
        shape = _find_shape(documents)
        fields = None if shape is None else pa.array(documents, shape)
    except (orjson.JSONDecodeError, OverflowError, pa.ArrowInvalid, _NotPlain):
        return None
    if fields is None:
        return None if documents else _frozen(DecodedMessages((), gone, ()))
    block = MessageBlock(rows, fields, "", None, {})
    return _frozen(DecodedMessages((block,), gone, ()))


class _NotPlain(Exception):
    """A value is of another kind than those that are read here, or than another of its field."""


def _find_shape(values: Iterable[Any]) -> pa.DataType | None:
    """The type of values, with the fields that one of them has; None where all are null."""
    kinds = {type(value) for value in values} - {type(None)}
    if not kinds:
        return None
    if kinds == {int}:
        return pa.int64()
    if kinds == {str}:
        return pa.string()
    if kinds != {dict}:
        raise _NotPlain
    objects = [value for value in values if value is not None]
    shapes = {name: _find_shape([one.get(name) for one in objects]) for name in dict.fromkeys(chain(*objects))}
    fields = [(name, shape) for name, shape in shapes.items() if shape is not None]
    if not fields or not all(objects):
        raise _NotPlain
    return pa.struct(fields)


def _is_as_expected(made: DecodedMessages, expected: pa.StructType | None) -> bool:
    """Tell whether columns have the types that they are to be read by."""
    for block in made.blocks if expected is not None else ():
        sides = [block.fields.type, *(field.type for field in block.fields.type if field.name in ("before", "after"))]
        for field in chain(*sides):
            at = expected.get_field_index(field.name)  # type: ignore[union-attr]
            if at >= 0 and expected.field(at).type != field.type:  # type: ignore[union-attr]
                return False
    return True


def _frozen(made: DecodedMessages) -> DecodedMessages:
    for rows in (made.tombstones, *(block.rows for block in made.blocks)):
        rows.flags.writeable = False
    return made


def _find_known(plan: BatchPlan) -> Converters:
    found = find_converters(plan)
    made = Converters(KnownDeserializer(found.key), KnownDeserializer(found.value))
    return READERS.of(id(found), lambda: made, found)


def _extract_known(block: MessageBlock, unwrap: UnwrapSettings) -> Any:
    def work() -> Any:
        made, *told = extract_changes(block, unwrap)
        for numbers in (made.rows, made.op, made.deleted, made.place) if made is not None else ():
            numbers.flags.writeable = False
        return made, *told

    return CHANGED.of((id(block), unwrap), work, block)


@contextmanager
def known_results() -> Iterator[None]:
    """Have messages decoded, and envelopes flattened, once."""
    which = (
        (decoder, "find_converters", _find_known),
        *((module, "extract_changes", _extract_known) for module in (change_reading, rows_before)),
    )
    with replaced(which):
        yield
