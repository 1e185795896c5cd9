"""A run in a thread of its own -> what sinks and sources of the server have alike: thread, session, probes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

import structlog
from pyspark.sql import SparkSession

from connector.errors import FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.kafka.admin import KafkaAdmin
from connector.runtime.lifecycle import Lifecycle, start_thread
from connector.server.connectors.port import Kind
from connector.server.probe import TIMEOUT_S, Probe
from connector.settings import CatalogSettings, KafkaSettings
from connector.settings.kafka.error_handling import NO_RETRIES

OpenSession = Callable[[], SparkSession]


class LiveConnector(ABC):
    """What lives in a thread; `cluster_id` is known once the broker was asked."""

    kind: Kind

    def __init__(
        self,
        name: str,
        lifecycle: Lifecycle,
        kafka: KafkaSettings,
        catalog: CatalogSettings,
        offsets_table: str,
        open_session: OpenSession | None,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            name: of the connector.
            lifecycle: what is asked of it.
            kafka: the cluster that it reads or writes.
            catalog: where its offsets are.
            offsets_table: their table, which is looked at to see whether the catalog answers.
            open_session: gives a Spark session with its catalog; None where somebody else runs the connector.
        """
        self.name, self.lifecycle = name, lifecycle
        self.cluster_id: str | None = None
        self._broker, self._catalog_probe = Probe(f"{name}-broker"), Probe(f"{name}-catalog")
        self._catalog_settings, self._offsets_table, self._open_session = catalog, offsets_table, open_session
        self._kafka_settings = kafka
        self._admin: KafkaAdmin | None = None
        self._spark: SparkSession | None = None
        self._catalog: Catalog | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to live, in a thread of its own."""
        self._thread = start_thread(self._live_by_name, f"{self.kind}-{self.name}")

    def close(self, timeout_s: float | None) -> bool:
        """Stop for good, and wait for the end of the current batch or step."""
        self.lifecycle.stop()
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def _live_by_name(self) -> None:
        """Live; each line that is logged says which of the connectors of this process it is of."""
        with structlog.contextvars.bound_contextvars(connector=self.name):
            self._live()

    @abstractmethod
    def _live(self) -> None:
        """Run as often as is asked, until it is stopped for good."""

    def _keep_session(self, spark: SparkSession) -> None:
        self._spark = spark

    def _session(self) -> SparkSession:
        if self._spark is None and self._open_session is not None:
            self._spark = self._open_session()
        if self._spark is None:
            raise FatalError(f"connector {self.name} is still starting; try again")
        return self._spark

    def _open_admin(self) -> KafkaAdmin:
        if self._admin is None:
            self._admin = KafkaAdmin(self._kafka_settings, TIMEOUT_S)
        return self._admin

    def _read_catalog(self) -> None:
        if self._catalog is None:
            self._catalog = Catalog(self._session(), self._catalog_settings, NO_RETRIES)
        self._catalog.load(self._offsets_table)
