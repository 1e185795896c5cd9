"""text of a partition-by option -> partition terms.

A term is a column (`region`), `year(c)`, `month(c)`, `day(c)`, `hour(c)` (plurals too), `bucket(c, N)` or
`truncate(c, N)`. Whether the column exists and has a fitting type is known only when the table is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import attrs

from connector.settings.configdef.value_types import InvalidValue, ValueType

Transform = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"]
PARTITION_HINT = "write a column, year|month|day|hour(column), bucket(column, N) or truncate(column, N)"

T = TypeVar("T")
_CALL = re.compile(r"(\w+)\s*\(\s*([^(),]+?)\s*(?:,\s*([^(),]+?)\s*)?\)")
_WITHOUT_WIDTH: dict[str, Transform] = {"year": "year", "month": "month", "day": "day", "hour": "hour"}
_WITH_WIDTH: dict[str, Transform] = {"bucket": "bucket", "truncate": "truncate"}
_MAX_WIDTH = 2**31 - 1


@attrs.frozen
class PartitionTerm:
    """One field of a partition spec; `width` is the N of bucket and truncate, None for all others."""

    column: str
    transform: Transform
    width: int | None = None


def split_terms(text: str) -> tuple[str, ...]:
    """Terms of a list; a comma inside parentheses belongs to its term."""
    pieces = [""]
    for place, part in enumerate(text.split("(")):
        # What stands before the last closing parenthesis, and behind no other opening one, is inside.
        inside, closing, outside = part.rpartition(")")
        first, *others = outside.split(",")
        pieces[-1] += f"{'(' if place else ''}{inside}{closing}{first}"
        pieces += others
    return tuple(term for piece in pieces if (term := piece.strip()))


def parse_partition_term(term: str) -> PartitionTerm:
    """Read one term; raises ValueError with what is wrong, without the term itself."""
    text = term.strip()
    call = _CALL.fullmatch(text)
    if call:
        return _parse_transform(call[1].lower(), call[2], call[3])
    if not text or re.search(r"[(),\s]", text):
        raise ValueError("a term is neither a column nor transform(column)")
    return PartitionTerm(text, "identity")


def _parse_transform(name: str, column: str, width: str | None) -> PartitionTerm:
    plain = _WITHOUT_WIDTH.get(name.removesuffix("s"))
    if plain:
        if width is not None:
            raise ValueError(f"{plain} takes a column only")
        return PartitionTerm(column, plain)
    wide = _WITH_WIDTH.get(name)
    if wide is None:
        raise ValueError("unknown transform")
    if width is None or not re.fullmatch(r"0*[1-9][0-9]{0,9}", width) or int(width) > _MAX_WIDTH:
        raise ValueError(f"{wide} needs a column and a whole number above 0, in this order")
    return PartitionTerm(column, wide, int(width))


def check_spec(terms: Sequence[PartitionTerm]) -> None:
    """Raise ValueError for terms that no spec has together, as Iceberg does once it makes the table."""
    if len(set(terms)) < len(terms):
        raise ValueError("a term is there twice")
    by_time = [term.column for term in terms if term.transform in _WITHOUT_WIDTH]
    if len(set(by_time)) < len(by_time):
        raise ValueError("a column has two of year, month, day and hour, of which the finest is enough")


def terms_type(
    parse: Callable[[str], T], what: str, hint: str, check: Callable[[Sequence[T]], None] = lambda _: None
) -> ValueType[tuple[str, ...]]:
    """Return the value type of a list of terms: each is checked by `parse`, and kept as it was written.

    `check` raises ValueError for terms that are not to be together.
    """

    def read(text: str) -> tuple[str, ...]:
        terms = split_terms(text)
        try:
            check([parse(term) for term in terms])
        except ValueError as wrong:
            raise InvalidValue(f"{{}} is not a list of {what} ({wrong})", hint) from None
        return terms

    return ValueType("list", read)


PARTITION_TERMS = terms_type(parse_partition_term, "partition terms", PARTITION_HINT, check_spec)
