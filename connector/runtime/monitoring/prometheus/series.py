"""Declared series -> what `/metrics` serves and what the reference lists: a name, its labels, a sentence.

Series that stand in for those of Debezium, Kafka Connect or the JMX exporter have their names, letter by letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

import attrs

Kind = Literal["counter", "gauge", "unknown"]


@attrs.frozen
class Series:
    """One name with its labels; `kind` is what Prometheus is told of it: unknown where a JMX exporter tells nothing."""

    name: str
    doc: str
    labels: tuple[str, ...] = ()
    kind: Kind = "unknown"

    def at(self, value: float, *labels: str) -> MetricSample:
        """Return its value for these labels, in the order of `labels`."""
        return MetricSample(self, labels, value)


@attrs.frozen
class MetricSample:
    """A value of a series."""

    series: Series
    labels: tuple[str, ...]
    value: float


class MetricSource(Protocol):
    """Anything that has metrics; asked at every scrape, so it answers at once and reads nothing but memory."""

    def samples(self) -> Iterator[MetricSample]:
        """Return the values of now."""


def declare(prefix: str, labels: tuple[str, ...], docs: Mapping[str, str]) -> dict[str, Series]:
    """Declare series that share a prefix and labels; return them by the rest of their name."""
    return {name: Series(prefix + name, doc, labels) for name, doc in docs.items()}
