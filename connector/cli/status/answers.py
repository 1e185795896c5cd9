"""What is asked beside -> its answer, waited for as long as a person waits."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

from connector.errors import RetriableError

CATALOG_WAIT_S = 10.0
"""So long one answer of the catalog is waited for: the JVM reads the classes that it needs for the first one."""

TABLES_WAIT_S = 60.0
"""So long all answers about a source's tables together may take: there may be hundreds."""

_Answer = TypeVar("_Answer")


def wait_for(asked: Future[_Answer], limit_s: float = CATALOG_WAIT_S) -> _Answer:
    """Return the catalog's answer. RetriableError: there is none within the limit."""
    try:
        return asked.result(limit_s)
    except TimeoutError as error:
        if asked.done():
            raise  # it was the answer
        raise RetriableError(
            f"the catalog did not answer within {limit_s:g} s; `icebridge doctor` looks for the reason"
        ) from error
