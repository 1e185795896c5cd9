"""What a batch met on its way -> lines of the log: late events, types that nobody knows, dead letters."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.model.plan import DeadLetterRef
from serde.events.flattened_order import ORDER_FIELDS

LOGGED_DEAD_LETTERS = 10
"""Dead letters per batch that the log shows one by one; all of them are in the topic."""


class BatchLog:
    """Logs the outcomes of one sink's batches; what would be said of every batch is said once."""

    def __init__(self) -> None:
        """Start with nothing said."""
        self._untold = False
        self._unknown_types = frozenset[str]()
        self._unplaced = frozenset[str]()
        self._unrouted = frozenset[str]()
        self._log = structlog.get_logger()

    def log_outcome(self, metrics: TaskMetrics, dead_letters: Sequence[DeadLetterRef]) -> None:
        """Log what a person may want to look at; `dead_letters` are those that were written just now."""
        if metrics.late:
            self._log.warning("dropped late events (older than the stored rows)", keys=metrics.late)
        if metrics.untold and not self._untold:
            self._untold = True
            self._log.warning(
                "rows were kept that may be from before a truncate: they are in other partitions, "
                "and have neither a log position nor a timestamp more precise than a second; logged once",
                rows=metrics.untold,
            )
        if unknown := metrics.unknown_types - self._unknown_types:
            self._unknown_types |= unknown
            self._log.warning(
                "events have types that this version does not know; their values are taken as the plain type behind "
                "each; logged once",
                types=sorted(unknown),
            )
        for name in sorted(metrics.unplaced - self._unplaced):
            self._unplaced |= {name}
            self._log.info(
                "flattened events do not tell where they stand in their source's log: what comes again is applied "
                "again, and across partitions dates decide; these add.fields make the order exact; logged once",
                connector=name,
                add_fields=ORDER_FIELDS.get(name, "by connector: docs/reference/databases.md"),
            )
        if unrouted := metrics.unrouted - self._unrouted:
            self._unrouted |= unrouted
            self._log.warning(
                "events that do not have the field of iceberg.tables.route-field go to no table; logged once",
                topics=sorted(unrouted),
            )
        for record, stage, reason in describe_first(dead_letters):
            self._log.warning("dead letter", record=record, stage=stage, reason=reason)


def describe_first(dead_letters: Sequence[DeadLetterRef]) -> tuple[tuple[str, str, str], ...]:
    """Return record, stage and reason of as many dead letters as a person reads."""
    return tuple(
        (f"{one.topic}-{one.partition} offset {one.offset}", one.stage, one.reason)
        for one in dead_letters[:LOGGED_DEAD_LETTERS]
    )
