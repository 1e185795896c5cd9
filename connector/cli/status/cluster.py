"""settings -> the cluster as it is, for people who look at a sink: asked once, beside what takes longer.

What Iceberg says can be shown without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import attrs

from connector.cli.status.end_offsets import LIMIT_S, describe, require_brokers
from connector.errors import ConnectorError
from connector.kafka.admin import KafkaAdmin
from connector.runtime.deadline import Deadline
from connector.settings import SinkSettings
from connector.sink.microbatch.cluster import inspect_cluster
from connector.sink.microbatch.start_offsets import ClusterState


@attrs.frozen
class ClusterView:
    """The cluster as it is, with no topics where the cluster gave no answer; then `unanswered` says so, in one line."""

    cluster_state: ClusterState
    unanswered: str = ""


@contextmanager
def view_cluster(settings: SinkSettings) -> Iterator[Future[ClusterView]]:
    """Ask beside what is done inside."""
    with ThreadPoolExecutor(1, "glance") as beside:
        yield beside.submit(_read_cluster, settings, Deadline.after(LIMIT_S))


def _read_cluster(settings: SinkSettings, deadline: Deadline) -> ClusterView:
    try:
        require_brokers(settings, deadline)
        return ClusterView(inspect_cluster(KafkaAdmin(settings.kafka, deadline=deadline)))
    except ConnectorError as error:
        return ClusterView(ClusterState("", {}, {}, {}), describe(error))
