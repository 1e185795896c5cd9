"""Another word for values that were not sent (`unavailable.value.placeholder`) -> Debezium's default, in every type."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pytest

from connector.settings import EventSettings
from connector.sink.convert.decoder import decode
from serde.events.unavailable_value import PLACEHOLDER, find_unavailable, parse_placeholder, use_known_placeholder
from tests.unit import sink_plans

WORD = "nicht gesändet"


@pytest.mark.parametrize(
    ("kind", "unsent", "sent"),
    [
        (pa.string(), WORD, PLACEHOLDER[:-1]),
        (pa.string(), base64.b64encode(WORD.encode()).decode(), "x"),
        (pa.string(), f'{{"{WORD}":"{WORD}"}}', "{}"),
        (pa.binary(), WORD.encode(), b"x"),
        (pa.list_(pa.string()), [WORD], [WORD, WORD]),
        (pa.list_(pa.int32()), list(WORD.encode()), [1]),
        (pa.map_(pa.string(), pa.string()), [(WORD, WORD)], [("a", WORD)]),
    ],
)
def test_the_word_is_known_in_every_type(kind: pa.DataType, unsent: Any, sent: Any) -> None:
    """A value that the source's word stands for counts as not sent; neighbours and nulls stay."""
    made = use_known_placeholder(pa.array([sent, unsent, None], kind), WORD)
    assert made.type == kind and made.to_pylist()[::2] == [sent, None]
    found = find_unavailable(made)
    assert found is not None and found.tolist() == [False, True, False]


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
