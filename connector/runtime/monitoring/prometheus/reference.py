"""Declared series -> docs/reference/metrics.md: every name that `/metrics` can have.

`python -m connector.runtime.monitoring.prometheus.reference` writes it again; a test fails when it is stale.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from connector.runtime.monitoring.prometheus import connect_series, debezium_series, jvm_metrics, own_series
from connector.runtime.monitoring.prometheus.series import Series

REFERENCE_PAGE = Path("docs/reference/metrics.md")
_INTRO = """\
# Metrics

Made from the declarations in `connector/runtime/monitoring/prometheus` by
`python -m connector.runtime.monitoring.prometheus.reference`; do
not edit. [How to use them](../how-to/monitoring.md).

Names of Debezium, Kafka Connect and the JMX exporter are theirs, letter by letter, and without a type, as the exporter
serves them. `process_*` are those of this process without Spark's JVM.
"""


def chapters() -> list[tuple[str, str, list[Series]]]:
    """Return title, a sentence, and series of each chapter."""
    connect = [series for named in connect_series.SERIES.values() for group in named for series in group.values()]
    return [
        ("Our own", "What neither Debezium nor Kafka Connect has a name for.", list(own_series.ALL)),
        (
            "Debezium",
            "`plugin` is iceberg, `name` the topic prefix. Contexts: streaming, sink (sinks), snapshot (sources).",
            [
                *debezium_series.STREAMING.values(),
                *debezium_series.SNAPSHOT.values(),
                debezium_series.ROWS_SCANNED,
                *debezium_series.SINK.values(),
            ],
        ),
        (
            "Kafka Connect",
            "Each under the name of Strimzi's rules, then under that of Confluent's.",
            [*connect, connect_series.CONNECTOR_STATUS, connect_series.TASK_STATUS, *connect_series.CLIENTS.values()],
        ),
        ("Spark's JVM", "Read every few seconds, not at a scrape.", list(jvm_metrics.ALL)),
    ]


def render_markdown() -> str:
    """Return the page."""
    parts = [_INTRO]
    for title, about, series in chapters():
        parts += [f"## {title}\n", f"{about}\n", *_render_table(series), ""]
    return "\n".join(parts)


def _render_table(series: Iterable[Series]) -> list[str]:
    rows = [f"| `{one.name}` | {', '.join(one.labels)} | {one.doc} |" for one in series]
    return ["| Name | Labels | Meaning |", "|---|---|---|", *rows]


if __name__ == "__main__":
    REFERENCE_PAGE.write_text(render_markdown(), "utf-8")
