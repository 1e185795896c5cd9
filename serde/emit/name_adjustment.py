"""Names of schemas and columns -> names that Avro allows, as Debezium's adjustment modes have it.

Source: Debezium 3.7, `SchemaNameAdjuster` with its replacement functions. `avro` puts an underscore for every character
that Avro does not allow; `avro_unicode` puts `_u` and the character's number, of the underscore too, so that no two
names become one. Names of schemas keep their dots, names of fields do not.
"""

from __future__ import annotations

import re
from typing import Literal

Adjustment = Literal["none", "avro", "avro_unicode"]
_FIRST, _LATER = re.compile(r"[A-Za-z_]"), re.compile(r"[A-Za-z0-9_]")
_SHORT = 2


def adjust_schema_name(name: str, mode: Adjustment) -> str:
    """The name of a schema."""
    return _adjust(name, mode, dots=True)


def adjust_field_name(name: str, mode: Adjustment) -> str:
    """The name of a field."""
    return _adjust(name, mode, dots=False)


def _adjust(name: str, mode: Adjustment, *, dots: bool) -> str:
    if mode == "none":
        return name
    parts = []
    for place, char in enumerate(name):
        stays = (_LATER if place else _FIRST).fullmatch(char) and not (mode == "avro_unicode" and char == "_")
        if stays or (char == "." and dots and place):
            parts.append(char)
        elif mode == "avro_unicode":
            parts += map(_escape_unit, _utf16_units(char))
        else:
            # A digit that comes first stays, behind the underscore.
            parts.append("_" * len(_utf16_units(char)) + (char if char.isdecimal() and not place else ""))
    return "".join(parts)


def _utf16_units(char: str) -> tuple[int, ...]:
    """The UTF-16 units of a character: Java counts those."""
    data = char.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))


def _escape_unit(unit: int) -> str:
    """Two digits are filled up to four, three are not: so Debezium writes them."""
    digits = f"{unit:x}"
    return "_u" + ("00" if len(digits) <= _SHORT else "") + digits
