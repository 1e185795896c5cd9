"""recorded files -> Kafka records: what tests/fixtures holds, as a broker would hand it out.

Format: tests/fixtures/README.md (one line per record, bytes in base64, a null value is a tombstone).
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from attrs import frozen

FIXTURES = Path(__file__).parent.parent / "fixtures"
# Tables with a key whose events the reference understands whole.
TABLES = ("customers", "order_lines", "full_pk", "uuid_key", "evolve")
# All recorded tables with a key, by topic; some were recorded for one variant less.
KEYED = (*TABLES, "Weird_Table", "defaults_t", "trunc_me", "toasty", "exotic", "debezium_signal")
# Recorded topics without a key.
OTHERS = ("events_nopk", "transaction", "message")
# Topic prefix of each recorded JSON variant.
VARIANTS = {
    "json_schema_envelope": "js",
    "json_envelope": "jn",
    "json_schema_envelope_truenulls": "tn",
    "json_schema_unwrap_rewrite": "urs",
    "json_unwrap_rewrite": "urn",
    "json_unwrap_rewrite_with_tombstone": "urt",
    "json_unwrap_tombstone": "utn",
    "json_unwrap_drop": "unn",
}
DUPLICATES = "json_unwrap_rewrite_dups"
ALL_VARIANTS = {**VARIANTS, DUPLICATES: "udup"}
AVRO = "avro_envelope"
# Tables whose topic has another name.
STATE_NAMES = {"Weird_Table": "Weird Table"}
_PREFIXES = {**ALL_VARIANTS, AVRO: "av"}


@frozen
class Record:
    """One Kafka record; a value of None is a tombstone."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 0


def load(variant: str, table: str) -> tuple[Record, ...]:
    """The records of one topic, sorted by partition and offset, as recorded."""
    return tuple(parse_line(json.loads(line)) for line in _lines(f"{variant}/{topic(variant, table)}.jsonl"))


def _lines(name: str) -> list[str]:
    """The lines of a file that may be packed, without empty ones; large recordings are."""
    path = FIXTURES / name
    packed = path.with_name(f"{path.name}.gz")
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    return [line for line in data.decode().split("\n") if line.strip()]


def tables(variant: str) -> tuple[str, ...]:
    """The tables with a key that were recorded in a variant."""
    return tuple(t for t in KEYED if variant != DUPLICATES or t != "debezium_signal")


def diagonal(names: Sequence[str], shift: int = 0) -> list[tuple[str, str]]:
    """Each table in one variant, the variants in turn, from the one at `shift` on."""
    variants = list(ALL_VARIANTS)
    return [(variants[(place + shift) % len(variants)], name) for place, name in enumerate(names)]


def topic(variant: str, table: str) -> str:
    """The topic's name: transaction and message stand outside of the schema `public`."""
    middle = "" if table in {"transaction", "message"} else "public."
    return f"{_PREFIXES[variant]}.{middle}{table}"


def writer_schemas() -> dict[int, str]:
    """The writer schemas of the Avro recording by the ids in its frames."""
    found = json.loads((FIXTURES / "avro_schemas_by_id.json").read_text(encoding="utf-8"))
    return {int(number): json.dumps(schema) for number, schema in found.items()}


def state(table: str, name: str = "state_1_final") -> list[dict[str, Any]]:
    """PostgreSQL's rows at the end; numbers with a point are Decimal so that no digit is lost."""
    lines = _lines(f"{name}/{STATE_NAMES.get(table, table)}.json")
    return [json.loads(line, parse_float=Decimal, parse_int=_whole) for line in lines]


def _whole(text: str) -> int | float:
    """A number without point; only a negative zero is none."""
    return -0.0 if text == "-0" else int(text)


def column_types(table: str, name: str = "state_1_final") -> dict[str, str]:
    """PostgreSQL's type (udt name, as in int4, timestamptz, _text) of each column."""
    columns = json.loads((FIXTURES / name / "_columns.json").read_text(encoding="utf-8"))
    return {c["column"]: c["udt"] for c in columns if c["table"] == STATE_NAMES.get(table, table)}


def in_batches(records: Iterable[Record], step: int, rng: Random) -> Iterator[list[Record]]:
    """The records in batches of this many, partitions in any order, each partition's in its own."""
    left: dict[int, list[Record]] = {}
    for record in records:
        left.setdefault(record.partition, []).append(record)
    while left:
        batch: list[Record] = []
        while left and len(batch) < step:
            number = rng.choice(sorted(left))
            batch.append(left[number].pop(0))
            if not left[number]:
                del left[number]
        yield batch


def partitions(records: Iterable[Record]) -> int:
    """How many partitions the topic needs."""
    return 1 + max((r.partition for r in records), default=0)


def parse_line(line: dict[str, Any]) -> Record:
    """The record that a line of a recording, parsed, is."""
    headers = tuple((name, _bytes(value)) for name, value in line["headers"] or ())
    return Record(
        topic=line["topic"],
        partition=line["partition"],
        offset=line["offset"],
        key=_bytes(line["key"]),
        value=_bytes(line["value"]),
        headers=headers,
        timestamp_ms=line["timestamp"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
