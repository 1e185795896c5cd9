"""Java regular expression and replacement -> Python's.

Debezium Server's `destination-regexp` is `String.replaceAll` of Java: groups are `$1` or `${name}`, a backslash takes
the next character as it is, named groups are written `(?<name>...)`.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache

_NAMED = re.compile(r"(?<!\\)\(\?<(?=[A-Za-z])")
_REFERENCE = re.compile(r"\\(.)|\$(?:(\d+)|\{([A-Za-z][A-Za-z0-9]*)\})|(\$|\\)", re.DOTALL)


@lru_cache(maxsize=256)
def compile_java(java: str, *, ignore_case: bool = False) -> re.Pattern[str]:
    """The Python pattern of a Java one; raises ValueError when Python cannot read it, or reads it as something else."""
    flags = re.ASCII | (re.IGNORECASE if ignore_case else re.NOFLAG)
    try:
        with warnings.catch_warnings():
            # Python warns of what it may read one day as Java does today: classes within classes, and their sets.
            warnings.simplefilter("error", FutureWarning)
            return re.compile(_NAMED.sub("(?P<", java), flags)
    except (re.error, FutureWarning) as wrong:
        raise ValueError(str(wrong)) from None
    except (OverflowError, RecursionError):
        raise ValueError("it repeats too often, or is nested too deeply") from None


def translate_replacement(replacement: str, pattern: re.Pattern[str]) -> str:
    """The `re.sub` template of a Java replacement; raises ValueError for a group the pattern does not have.

    As in Java `$12` means group 12 when there is one and group 1 followed by `2` otherwise.
    """
    parts: list[str] = []
    end = 0
    for match in _REFERENCE.finditer(replacement):
        parts += [_escape_literal(replacement[end : match.start()]), _translate_match(match, pattern)]
        end = match.end()
    return "".join([*parts, _escape_literal(replacement[end:])])


def _translate_match(match: re.Match[str], pattern: re.Pattern[str]) -> str:
    escaped, number, name, stray = match.groups()
    if escaped is not None:
        return _escape_literal(escaped)
    if stray is not None:
        raise ValueError("a lone $ or \\")
    if name is not None:
        if name not in pattern.groupindex:
            raise ValueError("a group that the expression does not name")
        return rf"\g<{name}>"
    return _translate_number(number, pattern.groups)


def _translate_number(digits: str, groups: int) -> str:
    size = 1
    while size < len(digits) and int(digits[: size + 1]) <= groups:
        size += 1
    if int(digits[:size]) > groups:
        raise ValueError("a group that the expression does not have")
    return rf"\g<{int(digits[:size])}>" + digits[size:]


def _escape_literal(text: str) -> str:
    return text.replace("\\", r"\\")
