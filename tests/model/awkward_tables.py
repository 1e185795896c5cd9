"""Tables that are awkward but legitimate -> Debezium's records of their changes, and the rows they must end in.

Each is a story: a topic, the columns of its key and of its rows by their Connect schemas, and changes. The truth is
made of the changes alone, by a dictionary of rows; values are told by what they mean, not by how they are sent.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from attrs import field, frozen

from serde.connect.values.binary_values import encode_unscaled
from tests.model.recordings import Record

Schema = Mapping[str, Any]
Row = Mapping[str, Any]
Change = tuple[str, Row | None, Row | None]
"""An operation, the key and the row; of a delete the row before. `0` is a tombstone, `columns` new schemas of rows."""

INT, LONG, TEXT, BOOL, DOUBLE, BYTES = ({"type": t} for t in ("int32", "int64", "string", "boolean", "double", "bytes"))
INSTANT = {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}
MOMENT = {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}
VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}


_EPOCH = datetime(1970, 1, 1)
"""Of timestamps without zone."""


def decimal(precision: int, scale: int) -> Schema:
    """Return the schema of a Connect Decimal."""
    told = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": told}


def array(items: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": {**items, "optional": True}}


def struct(**fields: Schema) -> Schema:
    """Return the schema of a struct."""
    return {"type": "struct", "fields": _fields(fields, ())}


@frozen
class Story:
    """A table and what happens to it; `keys` are the columns of its key, in the key's order."""

    topic: str
    columns: Mapping[str, Schema]
    keys: Sequence[str]
    changes: Sequence[Change]
    bare: bool = True
    """Whether JSON without schema can tell all of its values."""
    later: Mapping[str, Schema] = field(factory=dict)
    """The columns after the change `columns`."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows in the end; of a table without key every row of an insert or update."""
        held: dict[str, dict[str, Any]] = {}
        columns = self.columns
        for number, (op, key, row) in enumerate(self.changes):
            if op == "columns":
                columns = self.later
                continue
            name = str(number) if key is None else repr([_identity(columns[k], key[k]) for k in self.keys])
            if op in "d0":
                held.pop(name, None)
            elif row is not None:
                held[name] = {column: mean(columns[column], value) for column, value in row.items()}
        return list(held.values())

    def records(self, *, schemas: bool) -> list[Record]:
        """Return Debezium's records, in one partition."""
        made, columns = [], self.columns
        for op, key, row in self.changes:
            if op == "columns":
                columns = self.later
                continue
            own = _document(_key_schema(columns, self.keys), key, schemas=schemas)
            value = None if op == "0" else _envelope(columns, self.keys, op, row, len(made), schemas=schemas)
            made.append(Record(self.topic, 0, len(made), own, value))
        return made


def mean(schema: Schema, value: Any) -> Any:
    """Return what a value that is sent stands for."""
    if value is None:
        return None
    kind = schema["type"]
    if kind == "array":
        return [mean(schema["items"], one) for one in value]
    if kind == "map":
        return {mean(schema["keys"], key): mean(schema["values"], one) for key, one in value}
    if kind == "struct" and schema.get("name") != VARIABLE["name"]:
        return {each["field"]: mean(each, value.get(each["field"])) for each in schema["fields"]}
    return _MEANINGS.get(schema.get("name", kind), lambda _, value: value)(schema, value)


_MEANINGS: Mapping[str, Callable[[Schema, Any], Any]] = {
    "io.debezium.data.VariableScaleDecimal": lambda _, value: f"{_unscaled(value['value'], value['scale']):f}",
    "org.apache.kafka.connect.data.Decimal": lambda told, value: _unscaled(value, int(told["parameters"]["scale"])),
    "io.debezium.time.MicroTimestamp": lambda _, value: _EPOCH + timedelta(microseconds=value),
    "io.debezium.time.ZonedTimestamp": lambda _, value: datetime.fromisoformat(value).astimezone(UTC),
    "bytes": lambda _, value: base64.b64decode(value),
    "double": lambda _, value: float(value),
}


def _identity(schema: Schema, value: Any) -> Any:
    """Return what tells a key from others: equal numbers are one, whatever their scale."""
    meant = mean(schema, value)
    if schema is VARIABLE or isinstance(meant, Decimal):
        return Decimal(meant).normalize()
    return meant


def _unscaled(text: str, scale: int) -> Decimal:
    return Decimal(int.from_bytes(base64.b64decode(text), "big", signed=True)).scaleb(-scale)


def _fields(columns: Mapping[str, Schema], keys: Sequence[str]) -> list[Schema]:
    return [{**schema, "optional": name not in keys, "field": name} for name, schema in columns.items()]


def _key_schema(columns: Mapping[str, Schema], keys: Sequence[str]) -> Schema:
    return {"type": "struct", "fields": _fields({name: columns[name] for name in keys}, keys), "name": "Key"}


def _envelope(
    columns: Mapping[str, Schema], keys: Sequence[str], op: str, row: Row | None, number: int, *, schemas: bool
) -> bytes | None:
    image = {"type": "struct", "optional": True, "fields": _fields(columns, keys), "name": "Value"}
    source = struct(connector=TEXT, name=TEXT, db=TEXT, schema=TEXT, table=TEXT, ts_ns=LONG, lsn=LONG)
    schema = {
        "type": "struct",
        "name": "s.public.t.Envelope",
        "fields": [
            {**image, "field": "before"},
            {**image, "field": "after"},
            {**source, "field": "source"},
            {"type": "string", "field": "op"},
        ],
    }
    told = {"connector": "postgresql", "name": "s", "db": "d", "schema": "public", "table": "t"}
    told |= {"ts_ns": 1_700_000_000_000_000_000 + number * 1000, "lsn": 1000 + number}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return _document(schema, {**images, "source": told, "op": op}, schemas=schemas)


def _document(schema: Schema, payload: Any, *, schemas: bool) -> bytes | None:
    if payload is None:
        return None
    document = {"schema": schema, "payload": payload} if schemas else payload
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def _life(keys: Sequence[str], *rows: Row) -> list[Change]:
    """Insert rows, change the first, and delete the last, which has a tombstone behind it."""
    named = [{key: row[key] for key in keys} for row in rows]
    made: list[Change] = [("c", key, row) for key, row in zip(named, rows, strict=True)]
    return [*made, ("u", named[0], rows[0]), ("d", named[-1], rows[-1]), ("0", named[-1], None)]


def _deep(depth: int) -> tuple[Schema, Any]:
    schema, value = struct(n=INT), {"n": depth}
    for _ in range(depth):
        schema, value = struct(in_=schema), {"in_": value}
    return schema, value


def _number(text: str, scale: int) -> str:
    return encode_unscaled(int(Decimal(text).scaleb(scale)))


def _variable(text: str, scale: int) -> dict[str, Any]:
    return {"scale": scale, "value": _number(text, scale)}


_LONG_TEXT = "k" * 1500
_NAMES = ("with space", "a.b", 'q"uote', "it's", "tick`", "100%", "Größe", "a_b", "Upper", "$ref", "semi;colon", "x,y")
_TAKEN = ("_file", "_pos", "_deleted", "_partition", "_row_id", "op", "source", "ts_ms", "before", "after", "payload")
_LINES = array(struct(no=INT, tags=array(TEXT), parts=array(struct(w=DOUBLE))))
_DEEP = _deep(25)


def stories() -> list[Story]:
    """Return all of them."""
    return [
        Story(
            "awk.Sales-EU.Order.Line_Items-2", {"id": INT, "v": TEXT}, ["id"], _life(["id"], *_rows("id", "v", 1, 2, 3))
        ),
        _named("names", _NAMES),
        _named("taken", _TAKEN),
        Story("awk.public.keyless", {"id": INT, "v": TEXT}, [], [("c", None, {"id": n, "v": "x"}) for n in (1, 1, 2)]),
        Story(
            "awk.public.other_order",
            {"a": INT, "v": TEXT, "b": TEXT, "c": INT},
            ["c", "b", "a"],
            _life(["c", "b", "a"], *({"a": a, "v": "v", "b": str(b), "c": c} for a, b, c in _TRIPLES)),
        ),
        Story(
            "awk.public.deep",
            {"id": INT, "d": _DEEP[0]},
            ["id"],
            _life(["id"], {"id": 1, "d": _DEEP[1]}, {"id": 2, "d": None}, {"id": 3, "d": _DEEP[1]}),
        ),
        _nested(),
        Story(
            "awk.public.maps",
            {"id": INT, "m": {"type": "map", "keys": INT, "values": {**TEXT, "optional": True}}},
            ["id"],
            _life(["id"], {"id": 1, "m": [[1, "a"], [-2, None]]}, {"id": 2, "m": []}, {"id": 3, "m": None}),
            bare=False,
        ),
        Story("awk.public.keys_only", {"a": INT, "b": TEXT}, ["a", "b"], _life(["a", "b"], *_rows("a", "b", 1, 2, 3))),
        _texts("empty_texts", ["", " ", "\u0000", "  ", "null", "\u00a0"]),
        _texts("long_texts", [_LONG_TEXT, _LONG_TEXT + "a", _LONG_TEXT + "b", _LONG_TEXT[:-1]]),
        _texts("numeric_texts", ["1", "01", "1.0", "1e0", "+1", " 1", "NaN", "Infinity", "true", "1" * 30]),
        _texts("like_names", ["é", "e\u0301", "É", "ß", "SS", "ss", "\U0001f600", "\ufffd", "\u2028"]),
        Story(
            "awk.public.flags", {"k": BOOL, "v": INT}, ["k"], _life(["k"], {"k": True, "v": 1}, {"k": False, "v": 2})
        ),
        Story(
            "awk.public.bytes",
            {"k": BYTES, "v": BYTES},
            ["k"],
            _life(["k"], *({"k": _b64(k), "v": _b64(b"")} for k in (b"", b"\0", b"\0\0", b"\xff", b"x"))),
            bare=False,
        ),
        Story(
            "awk.public.doubles",
            {"id": INT, "v": DOUBLE},
            ["id"],
            _life(
                ["id"], *({"id": n, "v": v} for n, v in enumerate((0.5, "NaN", -0.0, 0.0, "-Infinity", 1e308, 5e-324)))
            ),
        ),
        Story(
            "awk.public.moments",
            {"k": MOMENT, "i": INSTANT, "v": INT},
            ["k", "i"],
            _life(["k", "i"], *({"k": k, "i": i, "v": 1} for k, i in _MOMENTS)),
            bare=False,
        ),
        _growing_decimals(),
        _variable_decimals(),
        _tombstones(),
        _evolved(),
    ]


_TRIPLES = ((1, 2, 3), (3, 2, 1), (2, 1, 3), (1, 3, 2), (11, 2, 3))
_MOMENTS = (
    (0, "1970-01-01T00:00:00Z"),
    (0, "1970-01-01T00:00:00.000001Z"),
    (-1, "1970-01-01T00:00:00Z"),
    (-62135596800000000, "0001-01-01T00:00:00Z"),
    (253402300799999999, "9999-12-31T23:59:59.999999Z"),
)


def _rows(key: str, value: str, *numbers: int) -> list[Row]:
    return [{key: number, value: f"v{number}"} for number in numbers]


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _named(name: str, columns: Iterable[str]) -> Story:
    own = {"id": INT, **dict.fromkeys(columns, TEXT)}
    rows = [{column: n if column == "id" else f"{column}{n}" for column in own} for n in (1, 2, 3)]
    return Story(f"awk.public.{name}", own, ["id"], _life(["id"], *rows))


def _texts(name: str, keys: Iterable[str]) -> Story:
    rows = [{"k": key, "v": key} for key in (*keys, "last")]
    return Story(f"awk.public.{name}", {"k": TEXT, "v": TEXT}, ["k"], _life(["k"], *rows))


def null_in_key() -> Story:
    """A unique index whose columns may be null, by `message.key.columns`: no row of a table with identifier fields."""
    rows = [{"a": a, "b": b, "v": v} for a, b, v in ((1, "b", "x"), (1, None, "y"), (2, "b", "z"), (2, None, "n"))]
    return Story("awk.public.null_in_key", {"a": INT, "b": TEXT, "v": TEXT}, ["a", "b"], _life(["a", "b"], *rows))


def _nested() -> Story:
    lines = [
        [{"no": 1, "tags": ["a", None, ""], "parts": [{"w": 0.5}, None, {"w": None}]}, None],
        [],
        [{"no": None, "tags": [], "parts": None}],
        None,
    ]
    rows = [{"id": n, "lines": one} for n, one in enumerate(lines)]
    return Story("awk.public.nested", {"id": INT, "lines": _LINES}, ["id"], _life(["id"], *rows))


def _growing_decimals() -> Story:
    """A key of numeric(6,2) that becomes numeric(12,4): the numbers are the same, and so are the rows."""
    before, after = decimal(6, 2), decimal(12, 4)
    rows: list[Row] = [{"k": _number(text, 2), "v": 1} for text in ("1.50", "-0.01", "0.00", "9999.99")]
    then: list[Row] = [{"k": _number(text, 4), "v": 2} for text in ("1.5", "-0.0100")]
    changes: list[Change] = [("c", {"k": row["k"]}, row) for row in rows]
    changes += [("columns", None, None), *(("u", {"k": row["k"]}, row) for row in then)]
    changes += [("d", {"k": _number("9999.99", 4)}, {"k": _number("9999.99", 4), "v": None})]
    columns: dict[str, Schema] = {"k": before, "v": INT}
    return Story("awk.public.decimals", columns, ["k"], changes, bare=False, later={"k": after, "v": INT})


def _variable_decimals() -> Story:
    """A key of `numeric`, of Oracle's `NUMBER`: thousands are sent as 1000 and as 1E+3, which are one row."""
    own = [("1", 0), ("2.5", 1), ("-0.001", 3), ("1E+3", -3), ("1E+40", 0)]
    rows = [{"k": _variable(text, scale), "v": 1} for text, scale in own]
    changes: list[Change] = [("c", {"k": row["k"]}, row) for row in rows]
    for text, scale in (("1", 0), ("1000", 0), ("1E+40", -40), ("2.5", 1)):
        row = {"k": _variable(text, scale), "v": 2}
        changes.append(("u", {"k": row["k"]}, row))
    changes.append(("d", {"k": _variable("-0.001", 3)}, {"k": _variable("-0.001", 3), "v": None}))
    return Story("awk.public.variable", {"k": VARIABLE, "v": INT}, ["k"], changes, bare=False)


def _tombstones() -> Story:
    """Tombstones before the delete, twice, and of keys that were never there."""
    changes: list[Change] = [("0", {"id": 9}, None)]
    changes += [("c", {"id": n}, {"id": n, "v": "x"}) for n in (1, 2, 3)]
    changes += [("0", {"id": 1}, None), ("d", {"id": 1}, {"id": 1, "v": "x"}), ("0", {"id": 2}, None)]
    changes += [("0", {"id": 2}, None), ("c", {"id": 2}, {"id": 2, "v": "again"})]
    return Story("awk.public.tombstones", {"id": INT, "v": TEXT}, ["id"], changes)


def _evolved() -> Story:
    """A column comes, one goes, one grows, in the middle of a batch."""
    before: dict[str, Schema] = {"id": INT, "gone": TEXT, "n": INT}
    after: dict[str, Schema] = {"id": INT, "n": LONG, "fresh": array(INT)}
    changes: list[Change] = [("c", {"id": n}, {"id": n, "gone": "g", "n": n}) for n in (1, 2)]
    changes.append(("columns", None, None))
    changes += [("c", {"id": n}, {"id": n, "n": 2**40, "fresh": [n]}) for n in (2, 3)]
    return Story("awk.public.evolved", before, ["id"], changes, later=after)


def told(rows: Iterable[Row], columns: Iterable[str]) -> list[str]:
    """Return rows as texts that sort, without what is beside their columns; NaN is NaN, -0.0 is not 0.0."""
    return sorted(repr([_plain(row.get(column)) for column in columns]) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted((repr(key), _plain(one)) for key, one in value.items())
    if isinstance(value, list):
        # Arrow has maps as lists of pairs.
        pairs = value and all(isinstance(one, tuple) for one in value)
        return _plain(dict(value)) if pairs else [_plain(one) for one in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    return str(value.normalize()) if isinstance(value, Decimal) else value
