"""Cases of a matrix -> parameters: a few for `make test`, all of them for `make test-all`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def tiered(cases: Iterable[Any], kept: Collection[Any], ids: Callable[[Any], str] | None = None) -> list[Any]:
    """All cases as parameters; those that are not `kept` are marked for `make test-all` only.

    A tuple has one value for each argument. ValueError where something is kept that is no case.
    """
    cases = list(cases)
    if strange := [case for case in kept if case not in cases]:
        raise ValueError(f"no cases: {strange}")
    return [_parameters(case, case in kept, ids) for case in cases]


def crossed(one: Sequence[Any], other: Sequence[Any], kept: Collection[tuple[Any, Any]]) -> list[Any]:
    """Every pair of two dimensions; those that are not `kept` are marked for `make test-all` only."""
    return tiered(product(one, other), kept)


def spread(one: Sequence[Any], other: Sequence[Any], count: int) -> list[Any]:
    """Every pair of two dimensions; `make test` has `count` pairs of each value of `one`, and all values of `other`.

    ValueError where it has not.
    """
    kept = [(value, other[(at + 2 * turn) % len(other)]) for at, value in enumerate(one) for turn in range(count)]
    if left := [value for value in other if value not in {pair[1] for pair in kept}]:
        raise ValueError(f"in no pair: {left}")
    return crossed(one, other, kept)


def _parameters(case: Any, kept: bool, ids: Callable[[Any], str] | None) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    name = None if ids is None else ids(case)
    return pytest.param(*values, marks=() if kept else (pytest.mark.thorough,), id=name)
