"""settings -> the cluster as it is, for people who look at a sink: asked once, beside what takes longer.

What Iceberg says can be shown without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import attrs

from connector.errors import ConnectorError
from connector.kafka.admin import Cluster
from connector.settings import SinkSettings
from connector.sink.factory import look
from connector.sink.microbatch.start_offsets import Seen

TIMEOUT_S = 5.0


@attrs.frozen
class Glance:
    """What was seen, with no topics where the cluster gave no answer; then `unanswered` says so, in one line."""

    seen: Seen
    unanswered: str = ""


@contextmanager
def glanced(settings: SinkSettings) -> Iterator[Future[Glance]]:
    """Ask beside what is done inside."""
    with ThreadPoolExecutor(1, "glance") as beside:
        yield beside.submit(_glance, settings)


def _glance(settings: SinkSettings) -> Glance:
    try:
        return Glance(look(Cluster(settings.kafka, TIMEOUT_S)))
    except ConnectorError as error:
        told = " ".join(str(error).split())
        return Glance(Seen("", {}, {}, {}), f"Kafka gave no answer, so nothing is told of what is there now: {told}")
