"""A snapshot's summary -> the sinks of other programs that have their offsets in it. Pure.

They find them again by walking back from the newest snapshot: where that one has expired they begin anew, and commit
twice what they had committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

FOREIGN_MS = 7 * 24 * 3600 * 1000
"""So long the newest commit of such a sink stays; then the sink counts as one that is used no more, as a group does of
which Kafka forgets the offsets. Nothing else tells that a table was taken over from it."""

_OWNERS = {
    "flink.max-committed-checkpoint-id": "flink.operator-id",
    "spark.sql.streaming.epochId": "spark.sql.streaming.queryId",
}
"""Properties that hold offsets, with those that tell whose. A job of Flink gets another id with each start, and its
operators keep theirs."""
_KAFKA_CONNECT = "kafka.connect.offsets."
"""How the property of Iceberg's Kafka Connect sink begins; its control topic and group follow."""


def name_foreign_sinks(summary: Mapping[str, str]) -> Iterator[str]:
    """Yield the sinks whose offsets a summary holds, each by what tells it from others."""
    for offsets, owner in _OWNERS.items():
        if offsets in summary:
            yield f"{owner}={summary.get(owner, '')}"
    yield from (name for name in summary if name.startswith(_KAFKA_CONNECT))
