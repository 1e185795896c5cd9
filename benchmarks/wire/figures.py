"""figures of the wire formats -> verdicts and lines. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from benchmarks.verdicts import Verdict
from connector.kafka.consumer.readers import LIBRDKAFKA, NATIVE
from connector.settings.kafka.reading import ReaderKind

JSON, BLOCKS, AVRO = "json", "json-schema", "avro"
FORMATS = (JSON, BLOCKS, AVRO)
READ_BLOCKS, READ_AVRO, WRITTEN_AVRO = 0.7, 1.0, 0.9
READERS: tuple[ReaderKind, ...] = (NATIVE, LIBRDKAFKA)
FETCHED = {NATIVE: 0.7, LIBRDKAFKA: 4.0}
"""CPU s per million records of 620 bytes; Spark's own source takes 10."""


@attrs.frozen
class Wire:
    """Events per CPU second by format, read and written, and CPU seconds per million records that a reader fetched.

    What was not measured is empty.
    """

    read: Mapping[str, float] = attrs.field(factory=dict)
    written: Mapping[str, float] = attrs.field(factory=dict)
    fetched: Mapping[str, float] = attrs.field(factory=dict)
    faults: tuple[str, ...] = ()


def wire_verdicts(wire: Wire) -> list[Verdict]:
    """One verdict per target; none is reached by wrong columns."""
    read, fetched = ({}, {}) if wire.faults else (wire.read, wire.fetched)
    return [
        Verdict("JSON with schema block / without, read", _over_json(read, BLOCKS), READ_BLOCKS, "at least", "x"),
        Verdict("Avro / JSON without schema block, read", _over_json(read, AVRO), READ_AVRO, "at least", "x"),
        Verdict(
            "Avro / JSON without schema block, written", _over_json(wire.written, AVRO), WRITTEN_AVRO, "at least", "x"
        ),
        *(
            Verdict(f"{name} reader, CPU per million records", fetched.get(name), limit, "at most", "s")
            for name, limit in FETCHED.items()
        ),
    ]


def wire_lines(wire: Wire) -> list[str]:
    """A line per direction, and what failed."""
    sides = (("read from a topic into columns", wire.read), ("written as envelopes", wire.written))
    lines = [
        f"{side}: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in rates.items()) + " events per CPU s"
        for side, rates in sides
        if rates
    ]
    if wire.fetched:
        seconds_by_reader = ", ".join(f"{name} {seconds:.2f}" for name, seconds in wire.fetched.items())
        lines.append(f"fetched, records of 620 bytes: {seconds_by_reader} CPU s per million")
    return [*lines, *wire.faults]


def _over_json(rates: Mapping[str, float], name: str) -> float | None:
    return rates[name] / rates[JSON] if name in rates and JSON in rates else None
