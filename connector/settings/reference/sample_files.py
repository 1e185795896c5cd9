"""declared options -> complete properties files: every key explained, defaults commented out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from connector.settings.configdef.common import OptionScope
from connector.settings.configdef.option import Option, Prefix
from connector.settings.connector_class import SOURCE_CLASS
from connector.settings.sink import options
from connector.settings.source import settings


@attrs.frozen
class Sample:
    """A way of running: where its file lies, what it is for, and what it sets."""

    path: str
    about: tuple[str, ...]
    values: Mapping[str, str]
    scopes: tuple[OptionScope, ...] = options.scopes_of("iceberg")


_COMMON = {
    "bootstrap.servers": "localhost:9092",
    "debezium.source.topic.prefix": "testc",
    "debezium.sink.iceberg.warehouse": "warehouse",
}
UPSERT = Sample(
    "config/iceberg-sink.properties",
    (
        "Debezium events to Iceberg tables by upsert: one row per key, deleted rows kept and marked.",
        "Envelopes (before, after, source, op) and flattened events are both read, with and without schema block.",
        "",
        "    icebridge run config/iceberg-sink.properties",
    ),
    _COMMON,
)
APPEND = Sample(
    "config/iceberg-append.properties",
    (
        "Debezium events to Iceberg tables by append: one row per event, nothing is ever rewritten.",
        "",
        "    icebridge run config/iceberg-append.properties",
    ),
    _COMMON
    | {
        "name": "icebridge-append",
        "debezium.sink.iceberg.table-namespace": "changes",
        "debezium.sink.iceberg.upsert": "false",
        "debezium.sink.iceberg.create-identifier-fields": "false",
    },
)
SOURCE = Sample(
    "config/iceberg-source.properties",
    (
        "Changes of Iceberg tables to Kafka, as Debezium's envelopes: inserts, updates and deletes of every snapshot,",
        "copy-on-write and merge-on-read, after a full read of each table.",
        "",
        "    icebridge run config/iceberg-source.properties",
    ),
    {
        "connector.class": SOURCE_CLASS,
        "bootstrap.servers": "localhost:9092",
        "topic.prefix": "lake",
        "table.include.list": "sales\\..*",
        "iceberg.catalog.warehouse": "warehouse",
    },
    settings.SCOPES,
)
OPENSEARCH = Sample(
    "config/opensearch-sink.properties",
    (
        "Debezium events to documents in OpenSearch: one document per key, deleted ones gone, older changes left out.",
        "The catalog holds nothing but the offsets.",
        "",
        "    icebridge run config/opensearch-sink.properties",
    ),
    _COMMON
    | {
        "name": "icebridge-search",
        "debezium.sink.type": "opensearch",
        "connection.url": "http://localhost:9200",
    },
    options.scopes_of("opensearch"),
)
SAMPLES = (UPSERT, APPEND, SOURCE, OPENSEARCH)
_HEADER = (
    "Every key is here. A commented line shows the default; one in <angle brackets> depends on other keys.",
    "More files may follow, such as one of config/catalogs; a later file wins, -X key=value wins over all.",
    "Secrets stay outside: ${env:NAME}, ${file:/path:key}, ${dir:/path:file}.",
    "Made by python -m connector.settings.reference.markdown; copy it rather than edit it.",
)


def render_sample(sample: Sample) -> str:
    """The text of a sample's file."""
    lines = [*map(_render_comment, sample.about), "#", *map(_render_comment, _HEADER)]
    for scope in sample.scopes:
        lines += ["", f"# ---- {scope.title} " + "-" * (100 - len(scope.title))]
        for option in scope.options:
            lines += _render_option(option, sample.values)
        for prefix in scope.prefixes:
            lines += _render_prefix(prefix)
    return "\n".join(lines) + "\n"


def _render_comment(text: str) -> str:
    return f"# {text}".rstrip()


def _render_option(option: Option[object], values: Mapping[str, str]) -> Iterator[str]:
    yield ""
    yield _render_comment(option.doc)
    if option.name in values:
        # A backslash is Java's escape in such files.
        yield f"{option.name}={values[option.name]}".replace("\\", "\\\\")
    else:
        yield f"#{option.name}={option.default_text}"


def _render_prefix(prefix: Prefix) -> Iterator[str]:
    yield ""
    yield _render_comment(prefix.doc)
    yield f"#{prefix.name}<key>=<value>"
