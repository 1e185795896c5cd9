"""events -> formats -> verdicts: the wire part of the benchmark, without a broker or a JVM."""

from __future__ import annotations

import pyarrow as pa

from benchmarks.verdicts import Verdict
from benchmarks.wire.figures import AVRO, BLOCKS, FORMATS, JSON, Wire, wire_lines, wire_verdicts
from benchmarks.wire.messages import SCHEMA_ID, events, messages
from serde.formats import make_deserializer


def _reached(wire: Wire) -> list[bool | None]:
    found: list[Verdict] = wire_verdicts(wire)
    return [verdict.reached for verdict in found]


def test_formats_hold_the_same_events() -> None:
    """Each format's messages decode into the same 13 columns, all events, no faults."""
    some = events(50)
    found = []
    for name in FORMATS:
        decoder = make_deserializer(name, None, {SCHEMA_ID: (some.schema,)}.__getitem__)
        decoded = decoder.decode(pa.array(messages(name, some), pa.binary()), "VALUE_CONVERTER")
        assert not decoded.faults
        (block,) = decoded.blocks
        found.append([dict(zip(row, map(str, row.values()), strict=True)) for row in block.fields.to_pylist()])
    assert len(found[0]) == 50 and len(found[0][0]) == 13
    stamps = [[row.pop("updated_at") for row in rows] for rows in found]
    assert found[0] == found[1] == found[2] and stamps[1] == stamps[2]


def test_targets_are_ratios_to_json() -> None:
    """Reading with schema block needs 0.7 of JSON's rate, Avro all of it; writing Avro 0.9."""
    wire = Wire({JSON: 100.0, BLOCKS: 71.0, AVRO: 99.0}, {JSON: 100.0, AVRO: 90.0})
    assert _reached(wire) == [True, False, True, None, None]


def test_readers_are_judged_by_their_cpu() -> None:
    """The native reader has 0.7 s for a million records, librdkafka 4."""
    wire = Wire(fetched={"native": 0.61, "librdkafka": 4.1})
    assert _reached(wire) == [None, None, None, True, False]
    assert wire_lines(wire) == ["fetched, records of 620 bytes: native 0.61, librdkafka 4.10 CPU s per million"]


def test_wrong_columns_reach_nothing() -> None:
    """A fault takes the reading figures back, and is said."""
    wire = Wire({JSON: 1.0, BLOCKS: 1.0, AVRO: 1.0}, faults=("wire-read: columns differ",))
    assert _reached(wire)[:2] == [None, None] and wire_lines(wire)[-1] == "wire-read: columns differ"
