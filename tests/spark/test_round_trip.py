"""Rows of a table -> the source's records -> the sink's decoding -> rows of a table of the same types: the law.

Columns and rows are drawn by hypothesis, for every handling mode, as JSON with and without schema and as Avro. What a
mode keeps comes back equal; what it loses (`emit.type_mapping.LOSSES`) is no other value than the lossy one, or a
fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.values.spark_types import to_spark
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.settings import EventSettings
from connector.sink.convert.decoded_records import DecodedRecords
from connector.sink.convert.decoder import decode
from connector.sink.model.plan import TablePlan
from connector.source.destinations.kafka import to_kafka_records
from connector.source.envelope import json_values, row_schema
from connector.source.envelope.column_records import JSON_SERIALIZERS, EventSerializers
from connector.source.envelope.event_format import EventFormat
from serde.avro.emitted_schema import avro_schema
from serde.avro.serializer import AvroSerializer
from serde.emit.connect_schema import Document
from serde.emit.envelope import SourceInfo
from serde.emit.row_schema import Primitive, RowList, RowMap, RowStruct, RowType
from serde.emit.type_mapping import LOSSES, BinaryMode, DecimalMode, HandlingModes, TimeMode, wire_type
from tests.harness.tiers import crossed, tiered
from tests.unit import sink_plans

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

EXACT = Context(prec=60)
PHASES = (Phase.explicit, Phase.generate)
MANY = 12
FORMATS = ("json", "json-schema", "avro")
FEW = [
    ("json", "adaptive"),
    ("json", "isostring"),
    ("json-schema", "connect"),
    ("json-schema", "nanoseconds"),
    ("avro", "microseconds"),
    ("avro", "adaptive_time_microseconds"),
    ("json-schema", "structured"),
    ("avro", "structured"),
]
"""Each format, and each way to write times, once."""
REGISTERED: dict[int, str] = {}
"""Avro schemas by id, as a registry would hold them."""
ORIGIN = SourceInfo("0.1", "p", "c", "db", "t", 1_700_000_000_000_000_000, "false", 5, None, 2)
# Kinds that JSON without schema tells apart, or that a column of the table's type reads from JSON's text.
BARE = frozenset({"boolean", "int", "long", "float", "double", "string", "uuid", "timestamptz"})
# Iceberg's name of a type -> its Arrow type; decimals are drawn.
ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "uuid": pa.uuid(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "binary": pa.binary(),
    "fixed": pa.binary(5),
}


@frozen
class Drawn:
    """A table: the Arrow type of each column, and values column by column."""

    types: tuple[pa.DataType, ...]
    columns: tuple[list[Any], ...]


_INNER = pa.struct([("f0", pa.int32()), ("f1", pa.string())])
NOTHING_INSIDE = Drawn(
    (pa.struct([("f0", pa.int32())]), pa.struct([("f0", _INNER), ("f1", pa.bool_())])),
    (
        [{"f0": None} if n % 3 else None for n in range(MANY)],
        [{"f0": {"f0": None, "f1": None} if n % 2 else None, "f1": n % 5 == 0} for n in range(MANY)],
    ),
)
"""Structs that are there, with fields that are null in every row: other values than null."""


@pytest.fixture(scope="module", autouse=True)
def _settled(spark: SparkSession) -> Iterator[None]:
    json_values.configure_session(spark)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "connector.sink.convert.converters._schema_fetcher", lambda *_: lambda number: (REGISTERED[number],)
        )
        yield


def _leaves() -> st.SearchStrategy[pa.DataType]:
    wide = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
    return st.sampled_from(list(ARROW.values())) | wide


def _types() -> st.SearchStrategy[pa.DataType]:
    inner = _leaves().filter(lambda kind: not isinstance(kind, pa.UuidType))
    struct = st.lists(inner, min_size=1, max_size=3).map(
        lambda kinds: pa.struct([(f"f{i}", k) for i, k in enumerate(kinds)])
    )
    text_map = inner.map(lambda kind: pa.map_(pa.string(), kind))
    other_map = inner.map(lambda kind: pa.map_(pa.int32(), kind))
    deep = (struct | inner.map(pa.list_) | text_map).flatmap(
        lambda kind: st.sampled_from([pa.list_(kind), pa.map_(pa.string(), kind), pa.struct([("f0", kind)])])
    )
    return _leaves() | inner.map(pa.list_) | struct | text_map | other_map | deep


def _value(kind: pa.DataType) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one case per type
    types = pa.types
    if types.is_list(kind):
        return st.lists(st.none() | _value(kind.value_type), max_size=3)
    if types.is_struct(kind):
        return st.fixed_dictionaries({f.name: st.none() | _value(f.type) for f in kind})
    if types.is_map(kind):
        keys = st.text(max_size=4) if types.is_string(kind.key_type) else st.integers(-(2**31), 2**31 - 1)
        return st.dictionaries(keys, st.none() | _value(kind.item_type), max_size=3).map(lambda d: list(d.items()))
    if types.is_decimal(kind):
        limit = 10**kind.precision - 1
        return st.integers(-limit, limit).map(lambda n: Decimal(n).scaleb(-kind.scale, EXACT))
    if isinstance(kind, pa.UuidType):
        return st.uuids().map(lambda u: u.bytes)
    if types.is_time(kind):
        return st.times()
    if types.is_date(kind):
        return st.dates()
    if types.is_timestamp(kind) and kind.unit == "ns":
        return st.integers(-(2**63) + 1, 2**63 - 2)
    if types.is_timestamp(kind):
        return st.datetimes(timezones=st.just(UTC) if kind.tz else st.none())
    return _plain_value(kind)


def _plain_value(kind: pa.DataType) -> st.SearchStrategy[Any]:
    types = pa.types
    if types.is_integer(kind):
        return st.integers(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
    if types.is_floating(kind):
        return st.floats(width=kind.bit_width)
    if types.is_boolean(kind):
        return st.booleans()
    if types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    return st.binary(max_size=12) if types.is_binary(kind) else st.text(max_size=12)


@st.composite
def tables(draw: st.DrawFn) -> Drawn:
    """Columns of any types with many values each, nulls among them."""
    kinds = tuple(draw(st.lists(_types(), min_size=4, max_size=10)))
    columns = tuple(draw(st.lists(st.none() | _value(kind), min_size=MANY, max_size=MANY)) for kind in kinds)
    return Drawn(kinds, columns)


def _array(kind: pa.DataType, column: list[Any]) -> pa.Array:
    return pa.array(column, kind)


def kept(kind: RowType, modes: HandlingModes, *, schemas: bool, top: bool = False) -> bool:
    """Whether the modes promise that values of a type come back as they were."""
    match kind:
        case Primitive():
            how = wire_type(kind, modes).how
            if schemas:
                # Columns of the top level that a table has as instants in nanoseconds take all digits.
                return how not in LOSSES or (top and kind.name == "timestamptz_ns")
            if kind.name == "timestamptz" and modes.times == "structured":
                return False
            return kind.name in BARE or (kind.name == "decimal" and modes.decimals == "string")
        case RowStruct():
            return all(kept(member.kind, modes, schemas=schemas) for member in kind.members)
        case RowList():
            return kept(kind.item, modes, schemas=schemas)
        case RowMap():
            return schemas and kept(kind.key, modes, schemas=True) and kept(kind.value, modes, schemas=True)


def layout(drawn: Drawn) -> TableLayout:
    """A table of the drawn columns behind its key."""
    columns = pa.schema([("id", pa.int64()), *((f"c{i}", kind) for i, kind in enumerate(drawn.types))])
    schema = build_table_schema(columns, ("id",), frozenset(), nanoseconds=True)
    return TableLayout("db.t", "u", "/", schema.model_dump_json(), '{"spec-id":0,"fields":[]}', 0, {}, {})


def written(
    spark: SparkSession, table: pa.Table, wire: EventFormat, serializers: EventSerializers = JSON_SERIALIZERS
) -> tuple[pa.Array, pa.Array]:
    """Keys and values of a create for each row, as the source writes them."""
    carried = pa.table([to_spark(column.combine_chunks()) for column in table.columns], names=table.schema.names)
    row = F.struct(*carried.schema.names)
    none = F.lit(None)
    frame = spark.createDataFrame(carried).select(
        F.lit("c").alias("op"),
        F.when(none.cast("boolean"), row).alias("before"),
        row.alias("after"),
        none.cast("long").alias("row_id"),
    )
    made = to_kafka_records(frame, wire, serializers, reads=False).toArrow()
    return tuple(made[name].combine_chunks().cast(pa.binary()) for name in ("key", "value"))


def in_avro(wire: EventFormat) -> EventSerializers:
    """What writes the events in Avro."""
    key = wire.key_schema
    assert key is not None
    return EventSerializers(_avro(key, {}), _avro(wire.value_schema, wire.constant))


def _avro(schema: Document, constant: dict[str, Any]) -> AvroSerializer:
    number, text = len(REGISTERED) + 1, json.dumps(avro_schema(schema))
    REGISTERED[number] = text
    return AvroSerializer(text, number, constant)


def read(keys: pa.Array, messages: pa.Array, target: TableLayout, fmt: str, *, evolve: bool = False) -> DecodedRecords:
    """What the sink makes of them for a table that exists."""
    table = TablePlan(0, target, upsert=True, keep_deletes=False)
    plan = sink_plans.plan(table, events=EventSettings(fmt, fmt, (), "__"), evolve=evolve, max_letters=100)
    return decode(ConsumerRecords("t", 0, np.arange(len(keys)), keys, messages), plan)


def plain(value: Any) -> Any:
    """A value that can be compared: NaN equals itself, the zeros differ."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _comparable(column: pa.Array) -> list[Any]:
    return [plain(value) for value in to_spark(column).to_pylist()]


def _modes(times: TimeMode) -> st.SearchStrategy[HandlingModes]:
    decimals, binaries = st.sampled_from(DecimalMode.__args__), st.sampled_from(BinaryMode.__args__)
    return st.builds(HandlingModes, decimals=decimals, times=st.just(times), binaries=binaries)


@pytest.mark.parametrize(("fmt", "times"), crossed(FORMATS, TimeMode.__args__, FEW))
def test_rows_come_back(spark: SparkSession, times: TimeMode, fmt: str) -> None:
    """Every column that its mode keeps comes back value for value; no row is lost for it."""
    schemas = fmt != "json"

    @example(NOTHING_INSIDE, HandlingModes(times=times))
    @given(tables(), _modes(times))
    @settings(
        max_examples=4, database=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
    )
    def law(drawn: Drawn, modes: HandlingModes) -> None:
        target = layout(drawn)
        described = row_schema.describe_row({"fields": _fields(target)})
        names = [m.name for m in described.members if m.name == "id" or kept(m.kind, modes, schemas=schemas, top=True)]
        given_columns = [pa.array(range(MANY), pa.int64()), *map(_array, drawn.types, drawn.columns)]
        table = pa.table(given_columns, names=target.columns.names).select(names)
        row = described.only(frozenset(names))
        wire = EventFormat(
            "t", row, row_schema.describe_key(row, ("id",)), modes, ORIGIN, key_schemas=schemas, value_schemas=schemas
        )
        serializers = in_avro(wire) if fmt == "avro" else JSON_SERIALIZERS
        outcome = read(*written(spark, table, wire, serializers), target, fmt)
        assert (outcome.faults, outcome.needs) == ((), ())
        (part,) = outcome.parts
        order = np.argsort(np.asarray(part.rows.column("id")))
        for name in names:
            found = part.rows.column(name).take(pa.array(order))
            assert found.type == target.columns.field(name).type
            assert _comparable(found) == _comparable(table.column(name).combine_chunks()), (name, modes)

    law()


@pytest.mark.parametrize("times", tiered(TimeMode.__args__, TimeMode.__args__[:1]))
def test_nothing_comes_back_wrong(spark: SparkSession, times: TimeMode) -> None:
    """A column that no mode promises without a schema comes back as it was, or its row is a fault, or the table would
    have to change first; never else. (Where tables do not follow their events, lenient conversion holds.)
    """

    @given(tables(), _modes(times))
    @settings(max_examples=3, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    def law(drawn: Drawn, modes: HandlingModes) -> None:
        whole = row_schema.describe_row({"fields": _fields(layout(drawn))})
        chosen = [m for m in whole.members if m.name != "id" and not kept(m.kind, modes, schemas=False)]
        chosen = [m for m in chosen if kept(m.kind, modes, schemas=True)][:1]
        if not chosen:
            return
        place = whole.members.index(chosen[0]) - 1
        target = layout(Drawn((drawn.types[place],), (drawn.columns[place],)))
        table = pa.table(
            [pa.array(range(MANY), pa.int64()), _array(drawn.types[place], drawn.columns[place])], ["id", "c0"]
        )
        row = row_schema.describe_row({"fields": _fields(target)})
        wire = EventFormat(
            "t", row, row_schema.describe_key(row, ("id",)), modes, ORIGIN, key_schemas=False, value_schemas=False
        )
        outcome = read(*written(spark, table, wire), target, "json", evolve=True)
        sent = _comparable(table.column("c0").combine_chunks())
        rows = sum(len(part) for part in outcome.parts)
        assert outcome.needs or rows + len(outcome.faults) == MANY
        for part in outcome.parts:
            for at, value in zip(part.rows.column("id").to_pylist(), _comparable(part.rows.column("c0")), strict=True):
                assert value == sent[at], (drawn.types[place], modes)

    law()


def _fields(target: TableLayout) -> list[Any]:
    fields: list[Any] = json.loads(target.schema_json)["fields"]
    return fields
