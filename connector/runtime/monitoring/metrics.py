"""What a task counted -> one value that adds up: over records, tasks and jobs, to the report of a batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs


@attrs.frozen
class TaskMetrics:
    """Counts of a batch, or of a part of it. A new count is one more field.

    `events`, `dead`, `tombstones`, `ignored` and `truncates` are records; `size_bytes` are their keys and values.
    `nulled` are values that became null because they could not be converted; `drift` names what events have and their
    table does not take (table index, field); `rows` are the changes of each table (by table index). `late` are keys
    whose changes were older than what their table has, `untold` changes that may be from before or after a truncate.
    """

    events: int = 0
    dead: int = 0
    tombstones: int = 0
    ignored: int = 0
    truncates: int = 0
    nulled: int = 0
    drift: frozenset[tuple[int, str]] = frozenset()
    rows: Counter[int] = attrs.field(factory=Counter)
    size_bytes: int = 0
    late: int = 0
    untold: int = 0

    def __add__(self, other: TaskMetrics) -> TaskMetrics:
        fields = (field.name for field in attrs.fields(TaskMetrics))
        return TaskMetrics(**{name: _add(getattr(self, name), getattr(other, name)) for name in fields})


def _add(one: Any, other: Any) -> Any:
    return one | other if isinstance(one, frozenset) else one + other
