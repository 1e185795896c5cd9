"""Connectors -> health as Debezium Server tells it: live, ready, started. Pure; it reads nothing but memory.

live     the loop of every connector moves; one that failed for good is not live, unless others share its process:
         they would end with it, and a restart mends no configuration
ready    broker and catalog answered at the last look, and a first batch or step is done, or there was nothing to do
started  every connector has begun to start, as soon as there is a JVM
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from connector.runtime.lifecycle import Lifecycle
from connector.server.connectors.port import Check, Connector

STALL_S = 120.0
"""How long a loop may stand still. A sink's moves during a batch too; a source's between its steps."""
SOURCE_STALL_S = 1800.0


def check_live(
    connectors: Iterable[Connector], clock: Callable[[], float] = time.monotonic, *, is_shared: bool = False
) -> list[Check]:
    """Return whether each connector's loop moves; `is_shared` where the process is a worker's, for any connectors."""
    return [_live(one, clock(), is_shared=is_shared) for one in connectors]


def _live(connector: Connector, now: float, *, is_shared: bool) -> Check:
    lifecycle = connector.lifecycle
    stalled_s = 0.0 if lifecycle.beat_at is None else now - lifecycle.beat_at
    limit = STALL_S if connector.kind == "sink" and lifecycle.state == "RUNNING" else SOURCE_STALL_S
    data: dict[str, Any] = {"state": lifecycle.state, "seconds_since_loop_moved": round(stalled_s, 1)}
    if lifecycle.state == "FAILED":
        data["reason"] = lifecycle.error
        return Check(f"{connector.name}-loop", is_shared, data)
    return Check(f"{connector.name}-loop", stalled_s <= limit, data)


def check_started(connectors: Iterable[Connector]) -> list[Check]:
    """Return whether each connector has begun, whatever became of it.

    One that waits for a broker, a catalog or topics has: it is not ready, and to kill it would bring none of them.
    """
    return [
        Check(f"{one.name}-started", _has_begun(one.lifecycle), {"state": one.lifecycle.state}) for one in connectors
    ]


def _has_begun(lifecycle: Lifecycle) -> bool:
    return lifecycle.starts > 0 or lifecycle.state != "UNASSIGNED"


def check_ready(connectors: Iterable[Connector]) -> list[Check]:
    """Return what readiness depends on; a connector that was paused or stopped on purpose is as ready as it can be."""
    checks = []
    for one in connectors:
        state = one.lifecycle.state
        checks += [] if state in {"PAUSED", "STOPPED"} else one.checks()
        checks.append(Check(f"{one.name}-running", state not in {"FAILED", "UNASSIGNED"}, {"state": state}))
    return checks


def health_document(checks: Iterable[Check]) -> tuple[int, dict[str, Any]]:
    """Return HTTP status and document of MicroProfile Health: 200 UP where all checks are, else 503 DOWN."""
    listed = list(checks)
    is_up = all(one.is_up for one in listed)
    shown = [{"name": one.name, "status": "UP" if one.is_up else "DOWN", "data": dict(one.data)} for one in listed]
    return (200 if is_up else 503), {"status": "UP" if is_up else "DOWN", "checks": shown}
