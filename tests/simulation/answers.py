"""Questions -> their answers, which are kept for a while."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import attrs

T = TypeVar("T")
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
