"""Names in modules -> others in their place for a while; `unittest.mock.patch` takes as long as a commit does here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

Replacement = tuple[Any, str, Any]
"""A module or its name, a name in it, and what stands there meanwhile."""

_load = cache(import_module)


@contextmanager
def replaced(which: Iterable[Replacement]) -> Iterator[None]:
    """Put others in the places of names of modules, and them back in the end."""
    before: list[Replacement] = []
    try:
        for place, name, value in which:
            module = _load(place) if isinstance(place, str) else place
            before.append((module, name, vars(module)[name]))
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in reversed(before):
            setattr(module, name, value)
