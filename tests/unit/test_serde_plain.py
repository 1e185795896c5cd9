"""text and bytes -> one column per message, as Connect's StringConverter and ByteArrayConverter hand them on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from serde.formats import make_deserializer

ID = pa.struct([("id", pa.string())])


@pytest.mark.parametrize(("fmt", "values"), [("string", ["a", "ü", ""]), ("bytes", [b"\xff", b"\x00", b""])])
def test_values(fmt: Any, values: list[Any]) -> None:
    """Each message is the column `value`, an empty one too; a null is a tombstone."""
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    outcome = make_deserializer(fmt).decode(pa.array([None, *raw, None], pa.binary()).slice(1), "VALUE_CONVERTER")
    (block,) = outcome.blocks
    assert (block.rows.tolist(), block.fields.field("value").to_pylist()) == ([0, 1, 2], values)
    assert (outcome.tombstones.tolist(), outcome.faults) == ([3], ())


def test_a_key_has_the_name_of_the_only_identifier_field() -> None:
    """A key is `key`, or the identifier field of a table that has one."""
    keys = pa.array([b"k"], pa.binary())
    names = [
        make_deserializer("string").decode(keys, "KEY_CONVERTER", kind).blocks[0].fields.type.names
        for kind in (None, ID)
    ]
    assert names == [["key"], ["id"]]


def test_what_is_no_text_is_a_fault() -> None:
    """Bytes that are no UTF-8 are faults of their own."""
    outcome = make_deserializer("string").decode(pa.array([b"a", b"\xff", b"b"], pa.binary()), "VALUE_CONVERTER")
    assert [(fault.row, fault.reason) for fault in outcome.faults] == [(1, "not UTF-8")]
    assert outcome.blocks[0].fields.field("value").to_pylist() == ["a", "b"]
    assert outcome.blocks[0].rows.tolist() == [0, 2]


def test_avro_needs_a_registry() -> None:
    """Avro without a registry is a mistake of the program, not of a message."""
    with pytest.raises(ValueError, match="needs a registry"):
        make_deserializer("avro")
