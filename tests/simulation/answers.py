"""Questions -> their answers, which are kept for a while."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

import attrs

T = TypeVar("T")
_PLAIN = str, int, frozenset, type(None)
MOST = 3000
"""So many answers are kept; then all are let go."""


@attrs.define(eq=False)
class Answers:
    """Answers by question; `kept` are the things whose place in memory is part of a question."""

    known: dict[Hashable, Any] = attrs.field(factory=dict)
    kept: list[Any] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        _EVERY.append(self)

    def of(self, question: Hashable, work: Callable[[], T], *keep: Any) -> T:
        """Return the answer that is known, or do the work."""
        if question in self.known:
            return self.known[question]  # type: ignore[no-any-return]
        if len(self.known) >= MOST:
            self.forget()
        answer = self.known[question] = work()
        self.kept.extend(keep)
        return answer

    def forget(self) -> None:
        """Let all answers go."""
        self.known.clear()
        self.kept.clear()


_EVERY: list[Answers] = []


def forget_all() -> None:
    """Let all answers to all questions go: from now on the program is another one."""
    for answers in _EVERY:
        answers.forget()


def as_question(value: Any) -> Hashable:
    """A value with the mappings, the lists and the objects in it taken apart: equal where all of it is."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return tuple([(key, as_question(one)) for key, one in value.items()])
    if isinstance(value, tuple | list):
        return tuple(map(as_question, value))
    read = _fields(type(value))
    return value if read is None else (type(value), *map(as_question, read(value)))


@cache
def _fields(kind: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """What gives the values of an attrs class's fields; None for other classes."""
    names = [field.name for field in attrs.fields(kind)] if attrs.has(kind) else []
    if len(names) < 2:
        return (lambda value: tuple(getattr(value, name) for name in names)) if names else None
    return attrgetter(*names)
