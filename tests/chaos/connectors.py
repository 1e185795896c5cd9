"""A write mode, a source or an index -> the properties of the icebridge connector that fills it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from attrs import frozen

from connector.demo.servers.ports import LOOPBACK
from tests.chaos.tables import TABLES
from tests.chaos.worker import PREFIX, TRANSACTIONS, topic
from tests.interop.postgres import USER

CATALOG = "catalog"
"""The database that the catalogs are in."""
LAKE = "lake"
"""What topics of the source begin with."""


_KEEPS = "debezium.sink.iceberg.upsert-keep-deletes"


class Kind(Enum):
    """What is compared with PostgreSQL."""

    TABLES = "tables"
    EVENTS = "events"
    INDEX = "index"
    SOURCE = "source"
    REPLICA = "replica"


@frozen
class Connector:
    """A connector of icebridge: its own properties on top of those of all."""

    name: str
    kind: Kind
    own: Mapping[str, str]
    catalog: str

    @property
    def keeps_deleted(self) -> bool:
        """Whether rows that are deleted stay, and are marked."""
        return self.own.get(_KEEPS) == "true"

    def table(self, name: str) -> str:
        """The table, or index, that holds PostgreSQL's table of this name."""
        sent = topic(name)
        if self.kind is Kind.INDEX:
            return sent
        flat = sent.replace(".", "_")
        return f"{LAKE}_default_{flat}" if self.kind is Kind.REPLICA else flat


@frozen
class Addresses:
    """Where connectors find Kafka, the catalogs' database and OpenSearch."""

    bootstrap_servers: str
    catalog_port: int
    search_url: str


def _sink(name: str, kind: Kind, own: Mapping[str, str]) -> Connector:
    properties = {
        "topics": ",".join(topic(table.name) for table in TABLES),
        "transaction.topic": TRANSACTIONS,
        "transaction.wait.ms": "180000",
        _KEEPS: "false",
    }
    return Connector(name, kind, {**properties, **own}, name)


_POSITIONS = "op,table,source.ts_ns,db,ts_ms,source.lsn"
_MODE = "debezium.sink.iceberg.write-mode"
_VERSION = "debezium.sink.iceberg.format-version"
_FIELDS = "debezium.transforms.unwrap.add.fields"


def _replica() -> Connector:
    own = {
        "topics": ",".join(f"{LAKE}.default.{topic(table.name).replace('.', '_')}" for table in TABLES),
        _KEEPS: "false",
        _MODE: "position-delete",
        _VERSION: "3",
    }
    return Connector("replica", Kind.REPLICA, own, "replica")


def _source(of: str) -> Connector:
    own = {
        "connector.class": "IcebergSource",
        "topic.prefix": LAKE,
        # A pattern: what is named must be there when the source starts.
        "table.include.list": rf"default\.{PREFIX}_.*",
        "topic.creation.default.partitions": "2",
        "poll.interval.ms": "500",
    }
    return Connector("source", Kind.SOURCE, own, of)


GROUPS: tuple[tuple[Connector, ...], ...] = (
    (
        _sink("search", Kind.INDEX, {"debezium.sink.type": "opensearch"}),
        _sink("append", Kind.EVENTS, {_MODE: "append", _FIELDS: _POSITIONS}),
    ),
    (
        _sink("equality", Kind.TABLES, {_MODE: "equality-delete", _FIELDS: _POSITIONS}),
        _source("equality"),
        _replica(),
    ),
    (
        _sink("position", Kind.TABLES, {_MODE: "position-delete"}),
        _sink("copy", Kind.TABLES, {_MODE: "copy-on-write", _FIELDS: _POSITIONS}),
        _sink("marked", Kind.TABLES, {_MODE: "equality-delete", _VERSION: "3", _KEEPS: "true", _FIELDS: _POSITIONS}),
    ),
)
"""Those that run at the same time; the groups take turns."""

_MAINTAINED = {
    "enabled": "true",
    "rate-limit-seconds": "5",
    "convert-equality-deletes.schedule.eq-delete-file-count": "4",
    "rewrite.schedule.data-file-count": "12",
    "rewrite.min-input-files": "2",
    "rewrite-manifests.schedule.manifest-count": "10",
    "expire-snapshots.schedule.interval-second": "30",
    "expire-snapshots.max-snapshot-age-seconds": "60",
    "expire-snapshots.retain-last": "2",
}


def catalog_properties(home: Path, name: str, port: int) -> dict[str, str]:
    """What any Iceberg client needs to open a catalog of this name; its tables are in the folder of that name."""
    return {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://{LOOPBACK}:{port}/{CATALOG}",
        "jdbc.user": USER,
        "jdbc.password": "any",
        "jdbc.schema-version": "V1",
        "warehouse": str(home / "warehouse" / name),
    }


def properties_of(connector: Connector, home: Path, at: Addresses, quick: Mapping[str, str]) -> dict[str, str]:
    """All properties of a connector."""
    is_source = connector.kind is Kind.SOURCE
    head = "iceberg.catalog" if is_source else "debezium.sink.iceberg"
    shared = {
        "name": f"{PREFIX}-{connector.name}",
        "bootstrap.servers": at.bootstrap_servers,
        f"{head}.catalog-name": connector.catalog,
        **{f"{head}.{key}": text for key, text in catalog_properties(home, connector.catalog, at.catalog_port).items()},
        "errors.retry.timeout": "900000",
        "errors.retry.delay.max.ms": "3000",
        "spark.master": "local[1]",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "listeners": "",
        "quarkus.http.port": "-1",
        **quick,
    }
    if is_source:
        return {**shared, **connector.own}
    maintained = {f"iceberg.maintenance.{key}": value for key, value in _MAINTAINED.items()}
    searching = {"connection.url": at.search_url, "iceberg.maintenance.enabled": "true"}
    return {
        **shared,
        "debezium.sink.batch.interval-ms": "500",
        **(searching if connector.kind is Kind.INDEX else maintained),
        **connector.own,
    }
