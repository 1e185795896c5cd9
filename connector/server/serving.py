"""A worker's properties -> a process that runs the connectors that were created by REST, until it is stopped.

One Spark for all of them: each connector has a session of its own in it, with its own catalog and settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import attrs
import structlog
from pyspark.sql import SparkSession

from connector.errors import ConfigError
from connector.iceberg.catalog.catalog import Catalog
from connector.runtime.lifecycle import Lifecycle, TargetState
from connector.runtime.monitoring.prometheus.exposition import MetricsRegistry
from connector.runtime.spark.session import open_session
from connector.runtime.spark.session_builder import StartingSession
from connector.runtime.spark.session_conf import catalog_conf
from connector.runtime.stop_flag import StopFlag
from connector.runtime.stop_signals import stop_on_signals
from connector.server.config_store import IcebergConfigStore
from connector.server.connectors.port import Connector
from connector.server.connectors.sink_connector import SinkConnector
from connector.server.connectors.source_connector import SourceConnector
from connector.server.process import serve_worker
from connector.server.rest.plugins import load_config
from connector.server.worker import Worker
from connector.settings import SinkSettings, SourceSettings
from connector.settings import server as server_options
from connector.settings.configdef.option import Option
from connector.settings.configdef.property_files import Entry
from connector.settings.sink import options as sink_options
from connector.settings.sink import settings as sink_settings
from connector.settings.source import settings as source_settings
from connector.settings.source.settings import is_source, is_source_key

_OWN_KEYS = frozenset(name for option in server_options.OPTIONS for name in option.names)
"""What a worker's file says of the worker itself."""
_SINK_TYPE = "debezium.sink.type"


@attrs.frozen
class ConnectorDefaults:
    """What a worker's file says for all connectors: the cluster, the catalog, Spark; a connector's own keys win."""

    config: Mapping[str, str] = attrs.field(repr=False)

    def complete(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return a connector's properties with what it does not say itself, by whatever name; a source has none of a
        sink's options.
        """
        unfit = _OWN_KEYS | {"name"}
        if is_source((), config):
            unfit |= {_SINK_TYPE, *(key for key in self.config if not is_source_key(key))}
        return {**_find_unsaid({key: text for key, text in self.config.items() if key not in unfit}, config), **config}


def _find_unsaid(given: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """Return what is given and a connector does not say, be it by the name that the same has in another program."""
    options: Sequence[Option[object]] = source_settings.OPTIONS
    rename: Callable[[Mapping[str, Entry]], dict[str, Entry]] = source_settings.rename_entries
    if not is_source((), config):
        options, rename = sink_options.collect_options().options, sink_settings.rename_entries
    layers = enumerate((given, config))
    named = rename({key: Entry(key, text, "", 0, layer) for layer, texts in layers for key, text in texts.items()})
    own = {name for name, entry in named.items() if entry.layer == 1}
    said = {name for option in options if own.intersection(option.names) for name in option.names}
    return {entry.key: entry.text for name, entry in named.items() if entry.layer == 0 and name not in said}


def serve(settings: SinkSettings, config: Mapping[str, str], starting: StartingSession | None = None) -> None:
    """Run the connectors of a worker until SIGTERM or SIGINT; each then ends after its current batch.

    Args:
        settings: of the worker's file, read as a sink's: its catalog keeps the connectors, its listeners answer.
        config: the same file, as it is written.
        starting: its session, if that began to start already.

    Raises:
        ConnectorError: why it could not start.
    """
    defaults, metrics, stopping = ConnectorDefaults(config), MetricsRegistry(), _Stop()
    for note in settings.notes:
        structlog.get_logger().warning(note)
    with open_session(settings, starting) as spark:
        store = IcebergConfigStore(
            Catalog(spark, settings.catalog, settings.errors), settings.server.config_table, settings.errors
        )
        worker = Worker(_connector_factory(spark, defaults), store, metrics)
        with ExitStack() as running:
            with worker.starting_stored():
                sampler = running.enter_context(serve_worker(settings.server, worker, metrics, defaults.complete))
                running.enter_context(stop_on_signals(stopping))
                sampler.read_java(spark._jvm)  # noqa: SLF001 - PySpark has no other way to its JVM
            structlog.get_logger().info("serving", connectors=worker.names)
            stopping.event.wait()
            worker.close()


def _connector_factory(
    spark: SparkSession, defaults: ConnectorDefaults
) -> Callable[[str, Mapping[str, str], TargetState], Connector]:
    def make(name: str, config: Mapping[str, str], target: TargetState) -> Connector:
        settings = load_config(defaults.complete(config))
        if settings.name != name:
            raise ConfigError(f"-X: name: is {settings.name}, and the connector is called {name}; give it one name")
        for note in settings.notes:
            structlog.get_logger().warning(note, connector=name)

        def open_own() -> SparkSession:
            return open_own_session(spark, settings)

        lifecycle = Lifecycle(target)
        if isinstance(settings, SourceSettings):
            return SourceConnector(settings, config, lifecycle, open_own)
        return SinkConnector(settings, config, lifecycle, open_own)

    return make


def open_own_session(spark: SparkSession, settings: SinkSettings | SourceSettings) -> SparkSession:
    """Return a session of the same Spark with a connector's catalog and settings.

    What only a start of Spark can set, such as memory and jars, is the worker's.
    """
    session = spark.newSession()
    wanted = {**catalog_conf(settings.catalog), **settings.spark}
    # What only a start can set cannot be set again, not even to what it is.
    fixed = [key for key, text in wanted.items() if not _is_own(session, key) and spark.conf.get(key, None) != text]
    if fixed:
        structlog.get_logger().warning(
            "only the worker's file can set these properties", connector=settings.name, properties=sorted(fixed)
        )
    for key, text in wanted.items():
        if _is_own(session, key):
            session.conf.set(key, text)
    return session


def _is_own(session: SparkSession, key: str) -> bool:
    """Tell whether a session can have a value of its own."""
    return key.startswith("spark.sql.") and (key.startswith("spark.sql.catalog.") or session.conf.isModifiable(key))


@attrs.frozen
class _Stop:
    """Stops the wait of the main thread."""

    event: StopFlag = attrs.field(factory=StopFlag)

    def stop(self) -> None:
        """Stop; safe to call from a signal handler."""
        self.event.set()
