"""Another word for values that were not sent (`unavailable.value.placeholder`) -> Debezium's default, in every type."""

from __future__ import annotations

import base64
import hashlib
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from connector.iceberg.types.values.variants import to_json_text
from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from serde.events.images.unavailable_value import (
    PLACEHOLDER,
    find_unavailable,
    parse_placeholder,
    use_known_placeholder,
)
from tests.unit import sink_plans

WORD = "nicht gesändet"
# Java's bytes have signs; `UnchangedToastedPlaceholder` of Debezium's PostgreSQL connector.
SIGNED = [code - 256 if code > 127 else code for code in WORD.encode()]
EPOCH = date(1970, 1, 1)
NAMED = UUID("1f05cad0-b3f9-3575-948c-677ce24266fc")


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values as Arrow; of lists of UUIDs it takes the bytes."""
    if not pa.types.is_list(kind) or not isinstance(kind.value_type, pa.UuidType):
        return pa.array(values, kind)
    stored = pa.array(values, pa.list_(kind.value_type.storage_type))
    items = pa.ExtensionArray.from_storage(kind.value_type, stored.values)
    return pa.ListArray.from_arrays(stored.offsets, items, type=kind, mask=stored.is_null())


@pytest.mark.parametrize(
    ("kind", "unsent", "sent"),
    [
        (pa.string(), WORD, PLACEHOLDER[:-1]),
        (pa.string(), base64.b64encode(WORD.encode()).decode(), "x"),
        (pa.string(), f'{{"{WORD}":"{WORD}"}}', "{}"),
        (pa.binary(), WORD.encode(), b"x"),
        (pa.list_(pa.string()), [WORD], [WORD, WORD]),
        (pa.list_(pa.int32()), list(WORD.encode()), [1]),
        (pa.list_(pa.int64()), SIGNED, [1]),
        (pa.list_(pa.date32()), [EPOCH + timedelta(days=code) for code in SIGNED], [EPOCH]),
        (pa.list_(pa.uuid()), [NAMED.bytes], [UUID(int=1).bytes]),
        (pa.list_(pa.uuid()), [NAMED.bytes], [NAMED.bytes, NAMED.bytes]),
        (pa.list_(pa.string()), [str(NAMED)], ["x"]),
        (pa.map_(pa.string(), pa.string()), [(WORD, WORD)], [("a", WORD)]),
    ],
)
def test_the_word_is_known_in_every_type(kind: pa.DataType, unsent: Any, sent: Any) -> None:
    """A value that the source's word stands for counts as not sent; neighbours and nulls stay."""
    given = column([sent, unsent, None], kind)
    made = use_known_placeholder(given, WORD)
    assert made.type == kind and made.to_pylist()[::2] == given.to_pylist()[::2]
    found = find_unavailable(made)
    assert found is not None and found.tolist() == [False, True, False]


def test_arrays_of_other_types_have_forms_of_their_own() -> None:
    """A TOASTed array of UUIDs comes as one UUID made of the word, one of dates as its bytes in days."""
    uuid = hashlib.md5(PLACEHOLDER.encode(), usedforsecurity=False).hexdigest()
    named = UUID(uuid[:12] + "3" + uuid[13:16] + f"{int(uuid[16], 16) & 3 | 8:x}" + uuid[17:])
    found = find_unavailable(column([[named.bytes], [UUID(int=5).bytes]], pa.list_(pa.uuid())))
    assert found is not None and found.tolist() == [True, False]
    days = [EPOCH + timedelta(days=code) for code in PLACEHOLDER.encode()]
    found = find_unavailable(pa.array([days, days[1:]], pa.list_(pa.date32())))
    assert found is not None and found.tolist() == [True, False]


def test_columns_without_the_word_stay() -> None:
    """What is no placeholder is not touched."""
    assert use_known_placeholder(pa.array(["x"]), WORD).to_pylist() == ["x"]


def test_decoding_uses_the_configured_word() -> None:
    """Rows leave the decoder with the word that the fold and the look-ups know."""
    events = EventSettings("auto", "auto", (), "__", placeholder=WORD)
    columns = {"id": pa.int64(), "a": pa.string(), "__deleted": pa.string()}
    plan = sink_plans.plan(sink_plans.append(0, columns), events=events)
    event = {"before": None, "after": {"id": 1, "a": WORD}, "source": {"name": "s"}, "op": "u"}
    assert sink_plans.rows(decode(sink_plans.run(event), plan))[0]["a"] == PLACEHOLDER


def test_hex_stands_for_bytes() -> None:
    """As in Debezium, hex: is followed by the bytes of the word."""
    assert parse_placeholder("hex:" + WORD.encode().hex()) == WORD
    assert parse_placeholder("plain") == "plain"
    with pytest.raises(ValueError, match="hex"):
        parse_placeholder("hex:zz")


@pytest.mark.parametrize("word", [PLACEHOLDER, WORD])
def test_arrays_in_variants_are_found(word: str) -> None:
    """An array that was not sent is found in a column of JSON texts, as a variant has it, whatever its items are."""
    codes = list(word.encode())
    kinds: list[tuple[pa.DataType, list[Any]]] = [
        (pa.string(), [word]),
        (pa.binary(), [word.encode()]),
        (pa.int64(), [code - 256 if code > 127 else code for code in codes]),
        (pa.date32(), [EPOCH + timedelta(days=code) for code in codes]),
        (pa.uuid(), [UUID(bytes=hashlib.md5(word.encode(), usedforsecurity=False).digest(), version=3).bytes]),
    ]
    for kind, items in kinds:
        lists = column([items, items[:-1] + items[-1:] * 2, None], pa.list_(kind))
        known = use_known_placeholder(to_json_text(lists, keep_nulls=True), word)
        found = find_unavailable(known)
        assert found is not None and found.tolist() == [True, False, False]
