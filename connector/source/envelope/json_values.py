"""Columns of a table -> JSON text of them, in the form that Connect's JsonConverter gives each type (Spark columns).

Numbers, texts, booleans and bytes go through Spark's `to_json` as they are: it writes doubles as Java does, NaN and
infinities as texts, bytes as base64. What differs is converted first. Needs a session in UTC and ANSI mode (see
`configure_session`): casts of decimals to text are plain only there, and overflow is an error and not a null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

import orjson
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody uses

from serde.emit.connect_schema import Document
from serde.emit.name_adjustment import adjust_field_name
from serde.emit.row_schema import Primitive, RowList, RowMap, RowStruct, RowType
from serde.emit.type_mapping import HandlingModes, ValueEncoding, wire_type

_JSON_OPTIONS = {"ignoreNullFields": "false"}
_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_LONG_DIGITS = 18
_WORD, _SIGN = Decimal(2**64), Decimal(2**63)
_HEX_OF_WORD = 16
_MICRO_DIGITS, _NANO_DIGITS = 6, 9
_STRUCTURED = HandlingModes(times="structured")
_SPARK_TYPES = {"int8": "tinyint", "int32": "int", "string": "string"}
# Redundant leading bytes of a two's complement number: what is left begins with the same sign.
_REDUNDANT = "^(?:00)+(?=[0-7][0-9A-F])|^(?:FF)+(?=[89A-F][0-9A-F])"
SESSION_OPTIONS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Iceberg tells `a` from `A`.
    "spark.sql.caseSensitive": "true",
}


def configure_session(spark: SparkSession) -> None:
    """Set what exact texts depend on, whatever the user's Spark settings say."""
    for key, value in SESSION_OPTIONS.items():
        spark.conf.set(key, value)


def json_text(column: Column, kind: RowStruct, modes: HandlingModes) -> Column:
    """The JSON object of a struct column; SQL null where the struct is null."""
    if _is_regular(kind, modes):
        return F.to_json(to_wire(column, kind, modes), _JSON_OPTIONS)
    return _concat_json(column, kind, modes)


def schema_prefix(schema: Document | None) -> str:
    """Return the JSON that stands before a payload with a schema block."""
    return f'{{"schema":{orjson.dumps(schema).decode()},"payload":'


def _has_text_keys(kind: RowMap, modes: HandlingModes) -> bool:
    """Whether JsonConverter writes a map as an object: other maps are arrays of [key, value]."""
    return isinstance(kind.key, Primitive) and wire_type(kind.key, modes).type == "string"


def _is_regular(kind: RowType, modes: HandlingModes) -> bool:
    """Whether `to_json` can write the type: it has no arrays of [key, value] for maps whose keys are no texts."""
    match kind:
        case Primitive():
            return True
        case RowStruct():
            return all(_is_regular(member.kind, modes) for member in kind.members)
        case RowList():
            return _is_regular(kind.item, modes)
        case RowMap():
            return _has_text_keys(kind, modes) and _is_regular(kind.value, modes)


def _is_plain(kind: RowType, modes: HandlingModes) -> bool:
    """Whether values go into `to_json` untouched."""
    match kind:
        case Primitive():
            return wire_type(kind, modes).how is ValueEncoding.AS_IS
        case RowStruct():
            return all(
                _is_plain(m.kind, modes) and adjust_field_name(m.name, modes.fields) == m.name for m in kind.members
            )
        case RowList():
            return _is_plain(kind.item, modes)
        case RowMap():
            return _is_plain(kind.key, modes) and _is_plain(kind.value, modes)


def to_wire(column: Column, kind: RowType, modes: HandlingModes) -> Column:
    """The column with every value in the form that the wire has, fields under their names there.

    A map whose keys are no texts on the wire may become a list of its entries.
    """
    match kind:
        case Primitive():
            return CONVERSIONS[wire_type(kind, modes).how](column, kind)
        case RowStruct():
            members = [
                to_wire(column[m.name], m.kind, modes).alias(adjust_field_name(m.name, modes.fields))
                for m in kind.members
            ]
            return F.when(column.isNotNull(), F.struct(*members))
        case _ if _is_plain(kind, modes):
            return column
        case RowList():
            return F.transform(column, lambda item: to_wire(item, kind.item, modes))
        case RowMap() if _has_text_keys(kind, modes):
            plain = _is_plain(kind.key, modes)
            keyed = column if plain else F.transform_keys(column, lambda key, _: to_wire(key, kind.key, modes))
            return F.transform_values(keyed, lambda _, value: to_wire(value, kind.value, modes))
        case RowMap():
            return F.transform(F.map_entries(column), lambda entry: _entry_to_wire(entry, kind, modes))
        case _:
            raise AssertionError(kind)


def _entry_to_wire(entry: Column, kind: RowMap, modes: HandlingModes) -> Column:
    key, value = to_wire(entry["key"], kind.key, modes), to_wire(entry["value"], kind.value, modes)
    return F.struct(key.alias("key"), value.alias("value"))


def _concat_json(column: Column, kind: RowType, modes: HandlingModes) -> Column:
    """The JSON text of any type, put together piece by piece; SQL null where the value is."""
    if isinstance(kind, Primitive) or _is_regular(kind, modes):
        return _single_json(to_wire(column, kind, modes))
    match kind:
        case RowStruct():
            pieces = [F.lit("{")]
            for position, member in enumerate(kind.members):
                label = F.to_json(F.array(F.lit(adjust_field_name(member.name, modes.fields))))
                comma = "," if position else ""
                pieces += [
                    F.lit(comma),
                    _strip_brackets(label),
                    F.lit(":"),
                    _json_or_null(column[member.name], member.kind, modes),
                ]
            return F.when(column.isNotNull(), F.concat(*pieces, F.lit("}")))
        case RowList():
            texts = F.transform(column, lambda item: _json_or_null(item, kind.item, modes))
            return F.concat(F.lit("["), F.array_join(texts, ","), F.lit("]"))
        case RowMap():
            return _concat_map(column, kind, modes)
        case _:
            raise AssertionError(kind)


def _concat_map(column: Column, kind: RowMap, modes: HandlingModes) -> Column:
    text_keys = _has_text_keys(kind, modes)
    opening, between, closing = ("", ":", "") if text_keys else ("[", ",", "]")

    def pair(entry: Column) -> Column:
        key, value = _json_or_null(entry["key"], kind.key, modes), _json_or_null(entry["value"], kind.value, modes)
        return F.concat(F.lit(opening), key, F.lit(between), value, F.lit(closing))

    texts = F.array_join(F.transform(F.map_entries(column), pair), ",")
    left, right = ("{", "}") if text_keys else ("[", "]")
    return F.concat(F.lit(left), texts, F.lit(right))


def _json_or_null(column: Column, kind: RowType, modes: HandlingModes) -> Column:
    return F.coalesce(_concat_json(column, kind, modes), F.lit("null"))


def _single_json(column: Column) -> Column:
    """The JSON text of one value: that of an array around it, without the brackets."""
    return F.when(column.isNotNull(), _strip_brackets(F.to_json(F.array(column), _JSON_OPTIONS)))


def _strip_brackets(text: Column) -> Column:
    return F.substring(text, F.lit(2), F.length(text) - 2)


def _unscaled_bytes(column: Column, kind: Primitive) -> Column:
    """BigInteger.toByteArray of the unscaled number: big-endian two's complement, as few bytes as hold it."""
    if kind.precision <= _LONG_DIGITS:
        number = (column * F.lit(Decimal(10**kind.scale))).cast("bigint")
        digits = F.lpad(F.hex(number), _HEX_OF_WORD, "0")
        # Measured: a third faster than cutting redundant bytes off by the expression below.
        return F.unhex(F.substring(digits, F.lit(_HEX_OF_WORD + 1) - _hex_digits(number), F.lit(_HEX_OF_WORD)))
    number = F.replace(column.cast("string"), F.lit("."), F.lit("")).cast("decimal(38,0)")
    rest = number % F.lit(_WORD)
    high = F.call_function("div", number - rest, F.lit(_WORD)) - F.when(rest < 0, 1).otherwise(0)
    low = F.when(rest < 0, rest + F.lit(_WORD)).otherwise(rest)
    signed = F.when(low >= F.lit(_SIGN), low - F.lit(_WORD)).otherwise(low).cast("bigint")
    words = [F.lpad(F.hex(word), _HEX_OF_WORD, "0") for word in (high, signed)]
    return F.unhex(F.regexp_replace(F.concat(*words), _REDUNDANT, ""))


def _hex_digits(number: Column) -> Column:
    """How many hexadecimal digits a long's shortest two's complement has: two for every eight bits, the sign's among
    them. The number stands here twice, and not once for each size: what Spark does with a plan grows with that.
    """
    bits = F.length(F.bin(number.bitwiseXOR(F.shiftright(number, 63))))
    return (F.shiftright(bits, 3) + 1) * 2


def _floor_div(column: Column, by: int) -> Column:
    """Towards the past, also before 1970."""
    return F.call_function("div", column - F.pmod(column, F.lit(by)), F.lit(by))


def _format_timestamp(column: Column) -> Column:
    return F.date_format(column.cast("timestamp"), _ISO + "'Z'")


def _format_time(column: Column) -> Column:
    return F.date_format(F.timestamp_micros(column), "HH:mm:ss.SSSSSS'Z'")


def _format_nanos(column: Column) -> Column:
    micros = F.date_format(F.timestamp_micros(_floor_div(column, 1000)), _ISO)
    rest = F.lpad(F.pmod(column, F.lit(1000)).cast("string"), 3, "0")
    return F.concat(micros, rest, F.lit("Z"))


def _parts(column: Column, kind: Primitive) -> Column:
    """The members of a structured date or time; what no value of ours has is null."""
    parts = _time_parts(column) if kind.name == "time" else _moment_parts(column, nanos=kind.name.endswith("_ns"))
    present = column.isNotNull()
    # A constant would be a member that is never null, and a value that is null has none of them.
    fields = [
        F.when(present, parts.get(name, F.lit(None))).cast(_SPARK_TYPES[part]).alias(name)
        for name, part in wire_type(kind, _STRUCTURED).members.items()
    ]
    return F.when(present, F.struct(*fields))


def _time_parts(column: Column) -> Mapping[str, Column]:
    """The parts of microseconds of the day."""
    return {
        "hour": _floor_div(column, 3_600_000_000),
        "minute": _floor_div(column, 60_000_000) % 60,
        "second": _floor_div(column, 1_000_000) % 60,
        "nanos": column % 1_000_000 * 1000,
        "precision": F.lit(_MICRO_DIGITS),
    }


def _moment_parts(column: Column, *, nanos: bool) -> Mapping[str, Column]:
    """The parts of a date, a timestamp, or nanoseconds since 1970; instants are in UTC."""
    moment = F.timestamp_micros(_floor_div(column, 1000)) if nanos else column
    micros = F.unix_micros(moment.cast("timestamp"))
    return {
        "year": F.year(moment),
        "month": F.month(moment),
        "day": F.day(moment),
        "hour": F.hour(moment),
        "minute": F.minute(moment),
        "second": F.second(moment),
        "nanos": F.pmod(column, F.lit(10**9)) if nanos else F.pmod(micros, F.lit(1_000_000)) * 1000,
        "offsetSeconds": F.lit(0),
        "precision": F.lit(_NANO_DIGITS if nanos else _MICRO_DIGITS),
    }


CONVERSIONS: Mapping[ValueEncoding, Callable[[Column, Primitive], Column]] = {
    ValueEncoding.AS_IS: lambda c, _: c,
    ValueEncoding.UNSCALED: _unscaled_bytes,
    ValueEncoding.TEXT: lambda c, _: c.cast("string"),
    ValueEncoding.DOUBLE: lambda c, _: c.cast("double"),
    # Spark breaks long texts into lines, as MIME does and Debezium does not.
    ValueEncoding.BASE64: lambda c, _: F.translate(F.base64(c), "\r\n", ""),
    ValueEncoding.BASE64_URL: lambda c, _: F.translate(F.base64(c), "+/\r\n", "-_"),
    ValueEncoding.HEX: lambda c, _: F.lower(F.hex(c)),
    ValueEncoding.DAYS: lambda c, _: F.unix_date(c),
    ValueEncoding.ISO_DATE: lambda c, _: F.concat(c.cast("string"), F.lit("Z")),
    ValueEncoding.MILLIS_OF_MICROS: lambda c, _: _floor_div(c, 1000),
    ValueEncoding.NANOS_OF_MICROS: lambda c, _: c * 1000,
    ValueEncoding.MICROS_OF_NANOS: lambda c, _: _floor_div(c, 1000),
    ValueEncoding.MILLIS_OF_NANOS: lambda c, _: _floor_div(c, 1_000_000),
    ValueEncoding.ISO_TIME: lambda c, _: _format_time(c),
    ValueEncoding.MICROS: lambda c, _: F.unix_micros(c.cast("timestamp")),
    ValueEncoding.MILLIS: lambda c, _: F.unix_millis(c.cast("timestamp")),
    ValueEncoding.NANOS: lambda c, _: F.unix_micros(c.cast("timestamp")) * 1000,
    ValueEncoding.ISO: lambda c, _: _format_timestamp(c),
    ValueEncoding.ISO_OF_NANOS: lambda c, _: _format_nanos(c),
    ValueEncoding.JSON: lambda c, _: F.to_json(c),
    ValueEncoding.DATE_PARTS: _parts,
    ValueEncoding.TIME_PARTS: _parts,
    ValueEncoding.PARTS: _parts,
    ValueEncoding.PARTS_OF_NANOS: _parts,
}
