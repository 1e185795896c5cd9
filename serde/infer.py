"""messages without schema -> a type: what kinds of values each field was seen with, and the type that holds them.

Whole numbers are int64, others float64, both in one field float64. Of kinds that exclude each other the expected one wins,
else the most frequent. The words NaN and Infinity are numbers where numbers are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
from attrs import define, field

from serde.bits import children

_WORDS = frozenset({"NaN", "Infinity", "-Infinity"})
_ORDER = ("text", "object", "list", "number", "flag")


@define(eq=False)
class Seen:
    """Kinds of the values of one field: text, word, whole, real, flag, object, list; null is not counted."""

    kinds: Counter[str] = field(factory=Counter)
    fields: dict[str, Seen] = field(factory=dict)
    item: Seen | None = None
    fixed: str | None = None
    """The kind that was expected beforehand and wins over all others."""

    def look(self, value: object) -> None:
        """Counts one value and what is in it."""
        match value:
            case None:
                return
            case bool():
                self.kinds["flag"] += 1
            case int():
                self.kinds["whole"] += 1
            case float():
                self.kinds["real"] += 1
            case str():
                self.kinds["word" if value in _WORDS else "text"] += 1
            case dict():
                self._object(value)
            case list():
                self._list(value)

    def _object(self, value: dict[str, object]) -> None:
        self.kinds["object"] += 1
        for name, child in value.items():
            self._child(name).look(child)

    def _list(self, value: Iterable[object]) -> None:
        self.kinds["list"] += 1
        for child in value:
            self._items().look(child)

    def _child(self, name: str) -> Seen:
        if name not in self.fields:
            self.fields[name] = Seen()
        return self.fields[name]

    def _items(self) -> Seen:
        if self.item is None:
            self.item = Seen()
        return self.item

    def credit(self, array: pa.Array) -> None:
        """Counts the values of a column that was read by a type; nothing in it can be of another kind."""
        count = len(array) - array.null_count
        if not count:
            return
        if pa.types.is_struct(array.type):
            self.kinds["object"] += count
            for child, column in zip(array.type, children(array), strict=True):
                self._child(child.name).credit(column)
        elif pa.types.is_list(array.type):
            self.kinds["list"] += count
            self._items().credit(array.flatten())
        elif (name := _kind_of(array.type)) is not None:
            self.kinds[name] += count

    def expect(self, kind: pa.DataType, fix: bool) -> None:
        """Adds a type known before: `fix` makes its kinds win; types that JSON has no kind for say nothing."""
        if pa.types.is_struct(kind):
            self._note("object", fix)
            for child in kind:
                self._child(child.name).expect(child.type, fix)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._note("list", fix)
            self._items().expect(kind.value_type, fix)
        elif (name := _kind_of(kind)) is not None:
            self._note(name, fix)

    def _note(self, name: str, fix: bool) -> None:
        """A known type without `fix` is only a hint: it holds where nothing was seen, and real stays real."""
        if fix:
            self.fixed = _family(name)
        if fix or not self.kinds or name == "real":
            self.kinds[name] += 0
            self.kinds.setdefault(name, 0)

    def winner(self) -> str | None:
        """The kind that the column gets; None when only nulls were seen."""
        if self.fixed:
            return self.fixed
        families: Counter[str] = Counter()
        for kind, count in self.kinds.items():
            families[_family(kind)] += count
        if not families:
            return None
        if families.keys() == {"word"}:
            return "text"
        families.pop("word", None)
        return max(families, key=lambda family: (families[family], -_ORDER.index(family)))

    def type(self) -> pa.DataType:
        """The Arrow type of the column; null where no value was seen."""
        match self.winner():
            case "object":
                return pa.struct([pa.field(name, child.type()) for name, child in self.fields.items()])
            case "list":
                return pa.list_(self.item.type() if self.item else pa.null())
            case "number":
                return pa.float64() if "real" in self.kinds or "word" in self.kinds else pa.int64()
            case "flag":
                return pa.bool_()
            case "text":
                return pa.string()
            case _:
                return pa.null()


def _family(kind: str) -> str:
    return "number" if kind in ("whole", "real") else kind


def _kind_of(kind: pa.DataType) -> str | None:
    if pa.types.is_integer(kind):
        return "whole"
    if pa.types.is_floating(kind):
        return "real"
    if pa.types.is_boolean(kind):
        return "flag"
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


def pruned(array: pa.StructArray) -> pa.StructArray:
    """The struct array without children that hold nothing: null columns, lists of unknown items, empty structs."""
    kept: list[tuple[pa.Field, pa.Array]] = []
    for child, column in zip(array.type, children(array), strict=True):
        if column.null_count == len(column) or (pa.types.is_list(child.type) and pa.types.is_null(child.type.value_type)):
            continue
        if pa.types.is_struct(child.type):
            column = pruned(column)  # noqa: PLW2901
            if not column.type.num_fields:
                continue
        kept.append((pa.field(child.name, column.type), column))
    if [item[0] for item in kept] == list(array.type):
        return array
    if not kept:
        return pa.array([{}] * len(array), pa.struct([]))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays([item[1] for item in kept], fields=[item[0] for item in kept], mask=mask)
