"""Rows of a DataFrame -> how many there are of each value of a column, counted by the tasks that compute them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

_WAIT_S, _STEP_S = 5.0, 0.005


class ValueCounts:
    """Counts rows beside the one action that computes them; a task that Spark repeats counts once.

    Costs some tens of nanoseconds per row.
    """

    def __init__(self, values: Sequence[str]) -> None:
        """Count these values, at least one; other rows are not counted."""
        self._values = tuple(values)
        self._observation = Observation(f"counts-{uuid.uuid4().hex}")

    def observe(self, rows: DataFrame, column: str) -> DataFrame:
        """Return the same rows, which are counted by a column when an action computes them."""
        counts = (F.count_if(F.col(column) == value).alias(value) for value in self._values)
        return rows.observe(self._observation, *counts)

    def read(self) -> dict[str, int]:
        """Return the counts that are not 0, after the action; none where Spark does not tell them in time."""
        java = self._observation._jo  # noqa: SLF001 - PySpark's own `get` would wait without end
        deadline = time.monotonic() + _WAIT_S
        # Spark's listeners hear of an action shortly after it is over.
        while java is not None and not java.future().isCompleted():
            if time.monotonic() > deadline:
                return {}
            time.sleep(_STEP_S)
        return {value: int(count) for value, count in self._observation.get.items() if count}
