"""sasl.jaas.config -> login module and its options (JAAS login configuration file syntax, one entry)."""

from __future__ import annotations

import re

import attrs

_VALUE = r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^\s;\"'=]+"
_OPTION = re.compile(rf"\s*([\w.-]+)\s*=\s*({_VALUE})", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


@attrs.frozen
class Login:
    """A login module by its class name without package, and its options."""

    module: str
    options: dict[str, str] = attrs.field(repr=False)


def parse_login(text: str) -> Login:
    """Read one entry; raises ValueError without any part of the text."""
    head = re.match(r"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b", text, re.IGNORECASE)
    if head is None:
        raise ValueError("is not a JAAS entry")
    options: dict[str, str] = {}
    end = head.end()
    while match := _OPTION.match(text, end):
        options[match[1]] = _unquote(match[2])
        end = match.end()
    if text[end:].strip() != ";":
        raise ValueError("is not a JAAS entry that ends with ;")
    return Login(head[1].rpartition(".")[2], options)


def _unquote(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return re.sub(r"\\(.)", lambda match: _CONTROL.get(match[1], match[1]), value[1:-1], flags=re.DOTALL)
