"""Python's values -> Java's iterators and maps of them, as Py4J's callers see these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import attrs


@attrs.define(eq=False)
class JavaIterator:
    """Java's Iterable and Iterator of some Python values, which are asked for one by one."""

    values: Iterable[Any]
    left: Iterator[Any] = attrs.field(init=False, factory=lambda: iter(()))
    ahead: list[Any] = attrs.field(init=False, factory=list)

    def iterator(self) -> JavaIterator:
        self.left, self.ahead = iter(self.values), []
        return self

    def hasNext(self) -> bool:  # noqa: N802
        self.ahead = self.ahead or list(islice(self.left, 1))
        return bool(self.ahead)

    def next(self) -> Any:
        return self.ahead.pop() if self.hasNext() else None


@attrs.frozen
class JavaMap:
    """Java's Map of strings."""

    values: Mapping[str, str]

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def entrySet(self) -> JavaIterator:  # noqa: N802
        return JavaIterator([_Entry(*item) for item in self.values.items()])


@attrs.frozen
class _Entry:
    key: str
    value: str

    def getKey(self) -> str:  # noqa: N802
        return self.key

    def getValue(self) -> str:  # noqa: N802
        return self.value
