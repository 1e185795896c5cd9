"""Settings and connectors of a process -> its HTTP servers and looks, for as long as it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.runtime.lifecycle import Lifecycle
from connector.runtime.monitoring.prometheus.exposition import MetricsRegistry
from connector.server.config_store import InMemoryConfigStore
from connector.server.connectors.port import Connector
from connector.server.connectors.sink_connector import SinkConnector
from connector.server.connectors.source_connector import SourceConnector
from connector.server.http.apps import build_app, build_health_app
from connector.server.http.server import Address, open_server
from connector.server.probe import Sampler
from connector.server.rest.connect_api import ConnectApi
from connector.server.rest.loggers import Loggers
from connector.server.rest.plugins import find_class
from connector.server.rest.security import AccessRules
from connector.server.worker import Worker
from connector.server.worker_metrics import WorkerMetrics
from connector.settings import SinkSettings, SourceSettings
from connector.settings.server import ServerSettings
from connector.sink.runner import SinkMonitor
from connector.source.runner import SourceMonitor

Monitor = TypeVar("Monitor", SinkMonitor, SourceMonitor)


def connectors_of(worker: Worker) -> list[Connector]:
    """Return the connectors of now."""
    return [one for name in worker.names if (one := worker.find(name)) is not None]


@contextmanager
def serve_worker(
    settings: ServerSettings,
    worker: Worker,
    metrics: MetricsRegistry,
    complete: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
) -> Iterator[Sampler]:
    """Answer HTTP requests about a worker's connectors while the block runs; what is yielded reads the JVM.

    Raises:
        ConfigError: a port that was asked for cannot be had.
    """
    sampler = Sampler(lambda: connectors_of(worker))
    metrics.add(sampler.jvm)
    metrics.add(WorkerMetrics(lambda: connectors_of(worker)))

    def cluster_id() -> str | None:
        return next((one for each in connectors_of(worker) if (one := getattr(each, "cluster_id", None))), None)

    loggers = Loggers()  # those of the process, whichever listener is asked
    with ExitStack() as running:
        for listener in settings.listeners:
            address = Address.of_listener(listener, settings.keystore, settings.key_password)
            rules = AccessRules(settings.origins, settings.user_info, address.is_loopback)
            api = ConnectApi(worker, f"{address.host}:{address.port}", cluster_id, complete, loggers)
            app = build_app(api, metrics, rules, takes_signals=settings.takes_signals)
            # Who has connectors created by requests cannot do without.
            is_given = settings.are_listeners_given or worker.takes_connectors
            server = open_server(app, address, is_given=is_given)
            if server is not None:
                running.enter_context(server)
                structlog.get_logger().info("listening", url=server.url, serves="REST, page, health, metrics")
        if settings.health_port >= 0:
            address = Address(settings.health_host, settings.health_port)
            app = build_health_app(worker, metrics)
            server = open_server(app, address, is_given=settings.is_health_port_given)
            if server is not None:
                running.enter_context(server)
                structlog.get_logger().info("listening", url=server.url, serves="health, metrics")
        sampler.start()
        running.callback(sampler.close)
        yield sampler


@contextmanager
def monitor_sink(settings: SinkSettings, config: Mapping[str, str]) -> Iterator[SinkMonitor]:
    """Serve the one sink of a process; what is yielded is for its runner."""
    connector = SinkConnector(settings, _complete(settings, config), Lifecycle())
    with _serve_one(settings.server, connector) as sampler:
        yield _read_java(connector.monitor, sampler)


@contextmanager
def monitor_source(settings: SourceSettings, config: Mapping[str, str]) -> Iterator[SourceMonitor]:
    """Serve the one source of a process; what is yielded is for its runner."""
    connector = SourceConnector(settings, _complete(settings, config), Lifecycle())
    with _serve_one(settings.server, connector) as sampler:
        yield _read_java(connector.monitor, sampler)


def _read_java(monitor: Monitor, sampler: Sampler) -> Monitor:
    """Have the sampler read the JVM of the session, too, once it is there."""

    def on_session(spark: SparkSession) -> None:
        sampler.read_java(spark._jvm)  # noqa: SLF001 - PySpark has no other way to its JVM
        monitor.on_session(spark)

    return attrs.evolve(monitor, on_session=on_session)


def _complete(settings: SinkSettings | SourceSettings, config: Mapping[str, str]) -> dict[str, str]:
    """Return properties with what Connect's tools look for in each configuration."""
    return {"name": settings.name, "connector.class": find_class(settings), **config}


@contextmanager
def _serve_one(settings: ServerSettings, connector: Connector) -> Iterator[Sampler]:
    metrics = MetricsRegistry()
    worker = Worker(None, InMemoryConfigStore(), metrics)
    worker.add(connector)
    with serve_worker(settings, worker, metrics) as sampler:
        yield sampler
