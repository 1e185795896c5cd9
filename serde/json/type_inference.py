"""messages without schema -> a type: what kinds of values each field was seen with, and the type that holds them.

Whole numbers are int64, others float64, both in one field float64; but a whole number that no double holds excludes
the others, and a known column says what its numbers are read into. Of kinds that exclude each other the expected one
wins, else the most frequent of those that have values. The words NaN and Infinity are numbers where numbers are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import define, field

from serde.arrays import children
from serde.json.scalars import holds_exactly

_FLOAT_WORDS = frozenset({"NaN", "Infinity", "-Infinity"})
_NUMBERS = {"whole": pa.int64(), "real": pa.float64()}
_NESTED_KINDS = frozenset({"object", "list"})
_MAX_EXACT = 2**53
"""Up to here every whole number is one of a double."""
_KIND_ORDER = ("text", "object", "list", "number", "flag")


@define(eq=False)
class ObservedTypes:
    """Kinds of the values of one field: text, word, whole, wide (a whole number that no double holds), real, flag,
    object, list; null is not counted.
    """

    kinds: Counter[str] = field(factory=Counter)
    fields: dict[str, ObservedTypes] = field(factory=dict)
    item: ObservedTypes | None = None
    fixed: str | None = None
    """The kind that was expected beforehand and wins over all others."""
    numbers: pa.DataType | None = None
    """What numbers are read into: the type of the known column, as far as it is one of numbers."""
    met: bool = False
    """Whether the field was in a message, if only as null, or in those of before; else it is only expected."""

    sourceless: bool = False
    """Of messages: whether any of them was an envelope without source."""

    def look(self, value: object) -> None:
        """Counts one value, as a parser gives it, and what is in it."""
        self.met = True
        form = type(value)
        if form is str:
            self.kinds["word" if value in _FLOAT_WORDS else "text"] += 1
        elif form is int:
            self.kinds["whole" if holds_exactly(value, 64) else "wide"] += 1  # type: ignore[arg-type]
        elif form is dict:
            self._object(value)  # type: ignore[arg-type]
        elif form is float:
            self.kinds["real"] += 1
        elif form is bool:
            self.kinds["flag"] += 1
        elif form is list:
            self._list(value)  # type: ignore[arg-type]

    def _object(self, value: dict[str, object]) -> None:
        self.kinds["object"] += 1
        for name, child in value.items():
            self.child(name).look(child)

    def _list(self, value: Iterable[object]) -> None:
        self.kinds["list"] += 1
        for child in value:
            self.items().look(child)

    def child(self, name: str) -> ObservedTypes:
        """The field of this name, made when it is new."""
        if name not in self.fields:
            self.fields[name] = ObservedTypes()
        return self.fields[name]

    def items(self) -> ObservedTypes:
        """The items of the list, made when they are new."""
        if self.item is None:
            self.item = ObservedTypes()
        return self.item

    def count_column(self, array: pa.Array) -> None:
        """Counts the values of a column that was read by a type; nothing in it can be of another kind."""
        self.met = True
        count = len(array) - array.null_count
        if not count:
            return
        if pa.types.is_struct(array.type):
            self.kinds["object"] += count
            for child, column in zip(array.type, children(array), strict=True):
                self.child(child.name).count_column(column)
        elif pa.types.is_list(array.type):
            self.kinds["list"] += count
            self.items().count_column(array.flatten())
        elif pa.types.is_floating(array.type):
            whole = pc.sum(pc.equal(pc.round(array), array)).as_py() or 0
            self.kinds.update({"whole": whole, "real": count - whole})
        elif pa.types.is_decimal(array.type):
            self.kinds["whole"] += count
        elif pa.types.is_integer(array.type):
            self._count_integers(array)
        elif (name := _kind_of(array.type)) is not None:
            self.kinds[name] += count

    def _count_integers(self, array: pa.Array) -> None:
        numbers = array.drop_null().to_numpy()
        large = numbers[np.abs(numbers) > _MAX_EXACT]
        wide = sum(not holds_exactly(number, 64) for number in large.tolist())
        self.kinds.update({kind: count for kind, count in (("whole", len(numbers) - wide), ("wide", wide)) if count})

    def merge_counts(self, other: ObservedTypes) -> None:
        """Adds what another field was seen with."""
        self.met |= other.met
        self.kinds.update(other.kinds)
        for name in other.kinds:
            self.kinds.setdefault(name, 0)
        self.fixed, self.numbers = self.fixed or other.fixed, self.numbers or other.numbers
        for name, child in other.fields.items():
            self.child(name).merge_counts(child)
        if other.item is not None:
            self.items().merge_counts(other.item)

    def expect(self, kind: pa.DataType, *, fix: bool) -> None:
        """Adds a type known before: `fix` makes its kinds win; types that JSON has no kind for say nothing.

        Without `fix` it is what messages of before had.
        """
        self.met |= not fix
        if pa.types.is_struct(kind):
            self._note("object", fix=fix)
            for child in kind:
                self.child(child.name).expect(child.type, fix=fix)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._note("list", fix=fix)
            self.items().expect(kind.value_type, fix=fix)
        elif pa.types.is_decimal(kind):
            self.numbers = kind if fix else self.numbers
        elif (name := _kind_of(kind)) is not None:
            self._note(name, fix=fix)
            if fix and name in _NUMBERS:
                self.numbers = _NUMBERS[name]

    def expect_nested(self, kind: pa.DataType) -> None:
        """Expects such a type here and below, as far as there are values of its kind at all."""
        name = "object" if pa.types.is_struct(kind) else _kind_of(kind)
        if name is None or _kind_family(name) not in map(_kind_family, self.kinds):
            return
        self.fixed = self.fixed or _kind_family(name)
        self.numbers = self.numbers or _NUMBERS.get(name)
        for child in kind if pa.types.is_struct(kind) else ():
            if child.name in self.fields:
                self.fields[child.name].expect_nested(child.type)

    def _note(self, name: str, *, fix: bool) -> None:
        """A known type without `fix` is only a hint: it holds where nothing was seen, and makes no number a real one.

        Whole numbers would fit into reals, so that nothing showed that the hint is not theirs.
        """
        if fix:
            self.fixed = _kind_family(name)
        if fix or not self.kinds:
            self.kinds["whole" if name == "real" and not fix else name] += 0

    def winner(self) -> str | None:
        """The kind that the column gets; None when only nulls were seen."""
        if self.fixed:
            return self.fixed
        families: Counter[str] = Counter()
        for kind, count in self.kinds.items():
            families[_kind_family(kind)] += count
        if not families:
            return None
        if families.keys() == {"word"}:
            return "text"
        families.pop("word", None)
        if len(families) > 1:
            # Empty objects and lists fill no column: what has values must not lose against them.
            filled = Counter({one: count for one, count in families.items() if self.has_values(one)})
            families = filled or families
        if self.takes_text and not families.keys().isdisjoint({"number", "text"}):
            return "number" if "number" in families else "text"
        return max(families, key=lambda family: (families[family], -_KIND_ORDER.index(family)))

    def has_values(self, family: str = "") -> bool:
        """Tell whether anything but nulls and empty objects and lists was seen here; or in objects, or in lists."""
        if family not in ("", *_NESTED_KINDS) or (not family and not self.kinds.keys() <= _NESTED_KINDS):
            return True
        objects = [] if family == "list" else [*self.fields.values()]
        lists = [] if family == "object" or self.item is None else [self.item]
        return any(inside.has_values() for inside in (*objects, *lists))

    @property
    def takes_text(self) -> bool:
        """True for a known column of decimals: numbers and texts of numbers may stand in it side by side."""
        return self.numbers is not None and pa.types.is_decimal(self.numbers)

    def has_clashes(self) -> bool:
        """True when kinds that exclude each other were seen here and none was expected; below is not looked at."""
        if self.fixed or len(self.kinds) < 2:  # noqa: PLR2004 - one kind excludes none
            return False
        families = {_kind_family(kind) for kind in self.kinds} - {"word"}
        if self.takes_text:
            families -= {"text"}
        return len(families) > 1 or (self._count_whole() > 0 and self._real() > 0)

    def _count_whole(self) -> int:
        """How many whole numbers there are that no double may stand for."""
        return 0 if self.numbers is not None else self.kinds["wide"]

    def _real(self) -> int:
        return self.kinds["real"] + self.kinds["word"]

    def _number(self) -> pa.DataType:
        if self.numbers is not None:
            return self.numbers
        real = "real" in self.kinds or "word" in self.kinds
        return pa.float64() if real and self._count_whole() <= self._real() else pa.int64()

    def type(self, *, met: bool = False) -> pa.DataType:
        """The Arrow type of the column; null where no value was seen. `met`: without fields that are only expected."""
        match self.winner():
            case "object":
                fields = [(name, child) for name, child in self.fields.items() if child.met or not met]
                return pa.struct([pa.field(name, child.type(met=met)) for name, child in fields])
            case "list":
                return pa.list_(self.item.type(met=met) if self.item else pa.null())
            case "number":
                return self._number()
            case "flag":
                return pa.bool_()
            case "text":
                return pa.string()
            case _:
                return pa.null()


def _kind_family(kind: str) -> str:
    return "number" if kind in ("whole", "wide", "real") else kind


def _kind_of(kind: pa.DataType) -> str | None:
    if pa.types.is_integer(kind):
        return "whole"
    if pa.types.is_floating(kind):
        return "real"
    if pa.types.is_boolean(kind):
        return "flag"
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else None


def fill_unknown(kind: pa.DataType) -> pa.DataType:
    """The type to read by: boolean where nothing is known (the reader mishandles null items),
    so true and false pass.
    """
    if pa.types.is_null(kind):
        return pa.bool_()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(child.name, fill_unknown(child.type)) for child in kind])
    return pa.list_(fill_unknown(kind.value_type)) if pa.types.is_list(kind) else kind
