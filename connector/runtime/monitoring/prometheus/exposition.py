"""Metrics of a process -> the text that Prometheus scrapes."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from connector.runtime.monitoring.prometheus.series import MetricSource, Series

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class MetricsRegistry(Collector):
    """All metrics of a process; sources come and go with connectors."""

    def __init__(self) -> None:
        """Begin with what the process itself uses (`process_*`)."""
        self._sources: list[MetricSource] = []
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def add(self, source: MetricSource) -> None:
        """Serve the metrics of one more source."""
        with self._lock:
            self._sources.append(source)

    def remove(self, source: MetricSource) -> None:
        """Serve them no longer."""
        with self._lock:
            self._sources = [one for one in self._sources if one is not source]

    def describe(self) -> list[Metric]:
        """Return nothing: names are not known before there is a connector."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return the values of now, those of one name together, as the format asks for.

        Each once: Debezium's names tell connectors apart by topic prefix alone, which two of them may share. Of a value
        that is there twice Prometheus takes the first, and complains at each scrape.
        """
        with self._lock:
            sources = list(self._sources)
        metrics: dict[Series, Metric] = {}
        told: set[tuple[Series, tuple[str, ...]]] = set()
        for source in sources:
            for sample in source.samples():
                series = sample.series
                if (series, sample.labels) in told:
                    continue
                told.add((series, sample.labels))
                if series not in metrics:
                    name = series.name.removesuffix("_total") if series.kind == "counter" else series.name
                    metrics[series] = Metric(name, series.doc, series.kind)
                labels = dict(zip(series.labels, sample.labels, strict=True))
                metrics[series].add_sample(series.name, labels, sample.value)
        yield from metrics.values()

    def render(self) -> bytes:
        """Return the text of a scrape."""
        return generate_latest(self._registry)
