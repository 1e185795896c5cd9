"""Spark's report of a failed task -> the error of ours that the task raised (a registry that is away, say)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from connector.errors import FatalError, GapError, RetriableError

_OURS = re.compile(r"^(?:.*\s)?connector\.errors\.(RetriableError|GapError|FatalError): (.+)$", re.MULTILINE)
_CLASSES = {"RetriableError": RetriableError, "GapError": GapError, "FatalError": FatalError}


@contextmanager
def of_tasks() -> Iterator[None]:
    """Raise what a task raised, when it is one of ours; other errors go through."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        told = _OURS.search(str(error))
        if told is None:
            raise
        raise _CLASSES[told[1]](told[2].strip()) from error
