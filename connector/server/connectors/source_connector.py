"""Settings of a source -> a connector of the server: its thread, metrics, looks at cluster and catalog, offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import orjson

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.state.offset_rows import SOURCE, OffsetRows
from connector.runtime.lifecycle import Lifecycle
from connector.runtime.monitoring.prometheus.series import MetricSource
from connector.runtime.monitoring.prometheus.source_metrics import SourceMetrics
from connector.runtime.monitoring.source_progress import SourceStatusLine
from connector.server.connectors.live_connector import LiveConnector, OpenSession
from connector.server.connectors.port import Check, ConnectorOffset, Kind
from connector.server.errors import RestError
from connector.server.recent import RecentActivity
from connector.settings import SourceSettings
from connector.source.runner import SourceMonitor, live_source
from connector.source.signals.queue_channel import SignalQueue
from connector.source.snapshots.table_offset import TableOffset, forget_offsets

_SERVER, _TABLE = "server", "table"


class SourceConnector(LiveConnector):
    """A `Connector` that is a source."""

    kind: Kind = "source"

    def __init__(
        self,
        settings: SourceSettings,
        config: Mapping[str, str],
        lifecycle: Lifecycle,
        open_session: OpenSession | None = None,
    ) -> None:
        """Prepare; nothing runs yet. Arguments as of `SinkConnector`."""
        super().__init__(
            settings.name, lifecycle, settings.kafka, settings.catalog, settings.capture.offsets_table, open_session
        )
        self.config, self._settings = config, settings
        self._metrics = SourceMetrics(settings.name, settings.outgoing.prefix)
        self._recent = RecentActivity()
        self.signals = SignalQueue()

    @property
    def metrics(self) -> Sequence[MetricSource]:
        """Its metrics."""
        return (self._metrics,)

    @property
    def monitor(self) -> SourceMonitor:
        """Who hears of its steps."""
        return SourceMonitor(
            self.lifecycle,
            (self._metrics, self._recent),
            (self._metrics,),
            signals=self.signals,
            on_session=self._keep_session,
            on_round=self._metrics.on_round,
            on_look=self._metrics.on_look,
            on_stop=self._metrics.on_stop,
            is_connected=lambda: self._metrics.connected,
        )

    def checks(self) -> list[Check]:
        """Return what readiness depends on."""
        rounds = self._metrics.rounds
        done = rounds > 0 or any(table.steps for table in self._metrics.tables.values())
        first = Check(f"{self.name}-first-step", done, {"rounds": rounds})
        return [*([self._broker.check] if self._has_broker else []), self._catalog_probe.check, first]

    def topics(self) -> list[str]:
        """Return the topics that are written."""
        written = [name for name, table in self._metrics.tables.items() if table.operations]
        return sorted(map(self._settings.outgoing.topic, written)) if self._has_broker else []

    def overview(self) -> dict[str, Any]:
        """Return what the page shows."""
        tables = self._metrics.tables
        return {
            "lag": {},
            "tables": {
                name: {**one.steps, "newest_event_ms": one.published_ms or 0} for name, one in sorted(tables.items())
            },
            "recent": self._recent.last(),
            "per_minute": self._recent.per_minute(),
            "dead_letters": {},
            "last_dead_letters": [],
            "dead_letter_topic": "",
            "snapshots": {name: [one.done, one.parts] for name, one in tables.items() if one.is_reading},
            "stopped": self._metrics.stopped,
        }

    def sample(self) -> None:
        """Look at the cluster and the catalog."""
        answered = not self._has_broker or self._broker.look(self._ask_broker) is not None
        self._metrics.connected = answered and self.lifecycle.state == "RUNNING"
        self._catalog_probe.look(self._read_catalog)

    def offsets(self) -> list[ConnectorOffset]:
        """Read the stored offsets, one per table."""
        stored = {table: orjson.loads(text) for table, text in sorted(self._rows().by_table.items())}
        # Of a table whose offset is forgotten a time is left.
        return [self._offset(table, document) for table, document in stored.items() if document.get("table-uuid") != ""]

    def alter_offsets(self, offsets: Sequence[ConnectorOffset] | None) -> None:
        """Store other offsets; for a table whose offset is forgotten `snapshot.mode` applies again.

        Snapshots on demand stay, and how far signals are read.
        """
        rows = self._rows()
        before = rows.by_table
        wanted = dict.fromkeys(before) if offsets is None else dict(map(self._parse, offsets))
        given = {table: text for table, text in wanted.items() if text is not None}
        rows.forget(wanted)
        rows.put(None, {**forget_offsets(before, wanted), **given})

    @property
    def _has_broker(self) -> bool:
        return self._settings.sink_type == "kafka"

    def _offset(self, table: str, document: dict[str, Any]) -> ConnectorOffset:
        return ConnectorOffset({_SERVER: self._settings.outgoing.prefix, _TABLE: table}, document)

    def _parse(self, given: ConnectorOffset) -> tuple[str, str | None]:
        table = given.partition.get(_TABLE)
        if not isinstance(table, str) or given.partition.get(_SERVER, self._settings.outgoing.prefix) != (
            self._settings.outgoing.prefix
        ):
            raise RestError(
                400, f"The partition of an offset of this connector has the keys '{_SERVER}' and '{_TABLE}'"
            )
        if given.offset is None:
            return table, None
        try:
            return table, TableOffset.of_document(given.offset).json()
        except ValueError as error:
            fault = f"the offset of table {table} is not one that this connector stores: {error}"
            raise RestError(400, fault) from None

    def _live(self) -> None:
        monitor = self.monitor
        monitor = attrs.evolve(monitor, listeners=(SourceStatusLine(terminal=False), *monitor.listeners))
        live_source(self._session, self._settings, monitor, survives=True)

    def _rows(self) -> OffsetRows:
        settings = self._settings
        catalog = Catalog(self._session(), settings.catalog, settings.errors)
        return OffsetRows(catalog, settings.capture.offsets_table, settings.name, SOURCE)

    def _ask_broker(self) -> str:
        self.cluster_id = self._open_admin().id()
        return self.cluster_id
