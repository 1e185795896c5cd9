"""Settings and environment -> the listeners that tell others of a run: OpenLineage, OpenTelemetry. Off by default."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import attrs

from connector.runtime.monitoring.lineage import BackgroundEmitter, DatasetNames, LineageListener, open_client
from connector.runtime.monitoring.telemetry import BatchLimits, Context, TelemetryListener, open_telemetry
from connector.settings.lineage import LineageSettings


@attrs.frozen
class Exporters:
    """Listeners of batches or steps, and those that hear how snapshots go."""

    listeners: tuple[LineageListener | TelemetryListener, ...] = ()
    snapshot_listeners: tuple[TelemetryListener, ...] = ()


@contextmanager
def open_exporters(
    settings: LineageSettings,
    names: DatasetNames,
    server: str,
    context: Context,
    environ: Mapping[str, str] = os.environ,
    limits: BatchLimits | None = None,
    is_connected: Callable[[], bool] = lambda: True,
) -> Iterator[Exporters]:
    """Give the listeners that settings and environment ask for, around a run; what failed in it is told.

    Args:
        settings: whether and how runs are told to OpenLineage.
        names: of datasets.
        server: the connector's logical name.
        context: of its metrics.
        environ: has the `OTEL_*` variables.
        limits: of its batches.
        is_connected: whether the cluster answered when it was last looked at.

    Raises:
        ConfigError: a package that is asked for is not installed, or its configuration cannot be used.
    """
    with ExitStack() as stack:
        telemetry = stack.enter_context(open_telemetry(environ, server, context, limits, is_connected))
        listeners = () if telemetry is None else (telemetry,)
        if not settings.enabled:
            yield Exporters(listeners, listeners)
            return
        send = open_client(settings, settings.namespace or server, f"{server}.0")
        emitter = stack.enter_context(BackgroundEmitter(send))
        lineage = stack.enter_context(LineageListener(names, emitter.emit))
        yield Exporters((lineage, *listeners), listeners)
