"""Columns of a table -> JSON text of them, in the form that Connect's JsonConverter gives each type (Spark columns).

Numbers, texts, booleans and bytes go through Spark's `to_json` as they are: it writes doubles as Java does, NaN and
infinities as texts, bytes as base64. What differs is converted first. Needs a session in UTC and ANSI mode (see
`settle`): casts of decimals to text are plain only there, and overflow is an error and not a null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody uses

from serde.emit.name_adjustment import field_name
from serde.emit.row_schema import Items, Kind, Pairs, Plain, Record
from serde.emit.type_mapping import How, Modes, form

_OPTIONS = {"ignoreNullFields": "false"}
_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_LONG_DIGITS = 18
_WORD, _SIGN = Decimal(2**64), Decimal(2**63)
_HEX_OF_WORD = 16
# Redundant leading bytes of a two's complement number: what is left begins with the same sign.
_REDUNDANT = "^(?:00)+(?=[0-7][0-9A-F])|^(?:FF)+(?=[89A-F][0-9A-F])"
SESSION = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Iceberg tells `a` from `A`.
    "spark.sql.caseSensitive": "true",
}


def settle(spark: SparkSession) -> None:
    """Set what exact texts depend on, whatever the user's Spark settings say."""
    for key, value in SESSION.items():
        spark.conf.set(key, value)


def json_text(column: Column, kind: Record, modes: Modes) -> Column:
    """The JSON object of a struct column; SQL null where the struct is null."""
    if _is_regular(kind, modes):
        return F.to_json(converted(column, kind, modes), _OPTIONS)
    return _by_hand(column, kind, modes)


def _text_keys(kind: Pairs, modes: Modes) -> bool:
    """Whether JsonConverter writes a map as an object: other maps are arrays of [key, value]."""
    return isinstance(kind.key, Plain) and form(kind.key, modes).type == "string"


def _is_regular(kind: Kind, modes: Modes) -> bool:
    """Whether `to_json` can write the type: it has no arrays of [key, value] for maps whose keys are no texts."""
    match kind:
        case Plain():
            return True
        case Record():
            return all(_is_regular(member.kind, modes) for member in kind.members)
        case Items():
            return _is_regular(kind.item, modes)
        case Pairs():
            return _text_keys(kind, modes) and _is_regular(kind.value, modes)


def _is_plain(kind: Kind, modes: Modes) -> bool:
    """Whether values go into `to_json` untouched."""
    match kind:
        case Plain():
            return form(kind, modes).how is How.AS_IS
        case Record():
            return all(_is_plain(m.kind, modes) and field_name(m.name, modes.fields) == m.name for m in kind.members)
        case Items():
            return _is_plain(kind.item, modes)
        case Pairs():
            return _is_plain(kind.key, modes) and _is_plain(kind.value, modes)


def converted(column: Column, kind: Kind, modes: Modes) -> Column:
    """The column with every value in the form that the wire has, fields under their names there.

    A map whose keys are no texts on the wire may become a list of its entries.
    """
    match kind:
        case Plain():
            return CONVERSIONS[form(kind, modes).how](column, kind)
        case Record():
            members = [
                converted(column[m.name], m.kind, modes).alias(field_name(m.name, modes.fields)) for m in kind.members
            ]
            return F.when(column.isNotNull(), F.struct(*members))
        case _ if _is_plain(kind, modes):
            return column
        case Items():
            return F.transform(column, lambda item: converted(item, kind.item, modes))
        case Pairs() if _text_keys(kind, modes):
            plain = _is_plain(kind.key, modes)
            keyed = column if plain else F.transform_keys(column, lambda key, _: converted(key, kind.key, modes))
            return F.transform_values(keyed, lambda _, value: converted(value, kind.value, modes))
        case Pairs():
            return F.transform(F.map_entries(column), lambda entry: _entry(entry, kind, modes))
        case _:
            raise AssertionError(kind)


def _entry(entry: Column, kind: Pairs, modes: Modes) -> Column:
    key, value = converted(entry["key"], kind.key, modes), converted(entry["value"], kind.value, modes)
    return F.struct(key.alias("key"), value.alias("value"))


def _by_hand(column: Column, kind: Kind, modes: Modes) -> Column:
    """The JSON text of any type, put together piece by piece; SQL null where the value is."""
    if isinstance(kind, Plain) or _is_regular(kind, modes):
        return _single(converted(column, kind, modes))
    match kind:
        case Record():
            pieces = [F.lit("{")]
            for position, member in enumerate(kind.members):
                label = F.to_json(F.array(F.lit(field_name(member.name, modes.fields))))
                comma = "," if position else ""
                pieces += [F.lit(comma), _inside(label), F.lit(":"), _or_null(column[member.name], member.kind, modes)]
            return F.when(column.isNotNull(), F.concat(*pieces, F.lit("}")))
        case Items():
            texts = F.transform(column, lambda item: _or_null(item, kind.item, modes))
            return F.concat(F.lit("["), F.array_join(texts, ","), F.lit("]"))
        case Pairs():
            return _map_by_hand(column, kind, modes)
        case _:
            raise AssertionError(kind)


def _map_by_hand(column: Column, kind: Pairs, modes: Modes) -> Column:
    text_keys = _text_keys(kind, modes)
    opening, between, closing = ("", ":", "") if text_keys else ("[", ",", "]")

    def pair(entry: Column) -> Column:
        key, value = _or_null(entry["key"], kind.key, modes), _or_null(entry["value"], kind.value, modes)
        return F.concat(F.lit(opening), key, F.lit(between), value, F.lit(closing))

    texts = F.array_join(F.transform(F.map_entries(column), pair), ",")
    left, right = ("{", "}") if text_keys else ("[", "]")
    return F.concat(F.lit(left), texts, F.lit(right))


def _or_null(column: Column, kind: Kind, modes: Modes) -> Column:
    return F.coalesce(_by_hand(column, kind, modes), F.lit("null"))


def _single(column: Column) -> Column:
    """The JSON text of one value: that of an array around it, without the brackets."""
    return F.when(column.isNotNull(), _inside(F.to_json(F.array(column), _OPTIONS)))


def _inside(text: Column) -> Column:
    return F.substring(text, F.lit(2), F.length(text) - 2)


def _unscaled(column: Column, kind: Plain) -> Column:
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
    """How many hexadecimal digits a long's shortest two's complement has."""
    chosen = F.when(number.between(-(2**7), 2**7 - 1), 2)
    for size in range(2, 8):
        half = 2 ** (8 * size - 1)
        chosen = chosen.when(number.between(-half, half - 1), 2 * size)
    return chosen.otherwise(_HEX_OF_WORD)


def _floor_div(column: Column, by: int) -> Column:
    """Towards the past, also before 1970."""
    return F.call_function("div", column - F.pmod(column, F.lit(by)), F.lit(by))


def _iso(column: Column) -> Column:
    return F.date_format(column.cast("timestamp"), _ISO + "'Z'")


def _iso_time(column: Column) -> Column:
    return F.date_format(F.timestamp_micros(column), "HH:mm:ss.SSSSSS'Z'")


def _iso_of_nanos(column: Column) -> Column:
    micros = F.date_format(F.timestamp_micros(_floor_div(column, 1000)), _ISO)
    rest = F.lpad(F.pmod(column, F.lit(1000)).cast("string"), 3, "0")
    return F.concat(micros, rest, F.lit("Z"))


CONVERSIONS: Mapping[How, Callable[[Column, Plain], Column]] = {
    How.AS_IS: lambda c, _: c,
    How.UNSCALED: _unscaled,
    How.TEXT: lambda c, _: c.cast("string"),
    How.DOUBLE: lambda c, _: c.cast("double"),
    # Spark breaks long texts into lines, as MIME does and Debezium does not.
    How.BASE64: lambda c, _: F.translate(F.base64(c), "\r\n", ""),
    How.BASE64_URL: lambda c, _: F.translate(F.base64(c), "+/\r\n", "-_"),
    How.HEX: lambda c, _: F.lower(F.hex(c)),
    How.DAYS: lambda c, _: F.unix_date(c),
    How.ISO_DATE: lambda c, _: F.concat(c.cast("string"), F.lit("Z")),
    How.MILLIS_OF_MICROS: lambda c, _: _floor_div(c, 1000),
    How.NANOS_OF_MICROS: lambda c, _: c * 1000,
    How.MICROS_OF_NANOS: lambda c, _: _floor_div(c, 1000),
    How.MILLIS_OF_NANOS: lambda c, _: _floor_div(c, 1_000_000),
    How.ISO_TIME: lambda c, _: _iso_time(c),
    How.MICROS: lambda c, _: F.unix_micros(c.cast("timestamp")),
    How.MILLIS: lambda c, _: F.unix_millis(c.cast("timestamp")),
    How.NANOS: lambda c, _: F.unix_micros(c.cast("timestamp")) * 1000,
    How.ISO: lambda c, _: _iso(c),
    How.ISO_OF_NANOS: lambda c, _: _iso_of_nanos(c),
    How.JSON: lambda c, _: F.to_json(c),
}
