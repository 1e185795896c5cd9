"""variant -> the configuration of Debezium's MariaDB or MySQL connector that tells the story in its own form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from connector.demo.servers.ports import LOOPBACK
from tests.interop.binlog_server import DATABASE, PASSWORD, USER, BinlogServer
from tests.interop.binlog_story import SLOW_BUSY, TABLES, signals_table

_UNWRAP = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.delete.tombstone.handling.mode": "rewrite",
    "transforms.unwrap.add.fields": (
        "op,table,source.ts_ns,source.snapshot,db,source.gtid,source.file,source.pos,source.row,source.server_id"
    ),
}
_PRECISE = {"bigint.unsigned.handling.mode": "precise"}
_SIDE_TOPICS = {"include.schema.changes": "true", "provide.transaction.metadata": "true"}
WITHOUT_SCHEMAS = {"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "schema": {**_PRECISE, **_SIDE_TOPICS},
    "unwrap": {**_UNWRAP, **_PRECISE},
    "plain": {**WITHOUT_SCHEMAS, **_SIDE_TOPICS},
    "avro": {**_PRECISE, **_SIDE_TOPICS, "schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"},
}
"""Envelopes as JSON with and without schema and as Avro, and flattened rows."""

_JSON = "org.apache.kafka.connect.json.JsonConverter"
_AVRO = "io.apicurio.registry.utils.converter.AvroConverter"


def prefix_of(server: BinlogServer, variant: str) -> str:
    """What the names of a variant's topics begin with."""
    return f"{server.name}_{variant}"


def topics_of(server: BinlogServer, variant: str) -> list[str]:
    """The topics that a variant's connector fills: the tables', and those that hold no rows."""
    prefix = prefix_of(server, variant)
    side = (prefix, f"{prefix}.transaction") if _SIDE_TOPICS.items() <= VARIANTS[variant].items() else ()
    return [*(f"{prefix}.{DATABASE}.{table}" for table in TABLES), *side]


def connector(
    variant: str, server: BinlogServer, folder: Path, bootstrap_servers: str, registry_url: str
) -> dict[str, str]:
    """The configuration of one variant's connector."""
    prefix, signals = prefix_of(server, variant), f"{DATABASE}.{signals_table(variant)}"
    tables = [*(f"{DATABASE}.{table}" for table in TABLES), signals]
    return {
        "connector.class": server.connector_class,
        "tasks.max": "1",
        "database.hostname": LOOPBACK,
        "database.port": str(server.port),
        "database.user": USER,
        "database.password": PASSWORD,
        "database.server.id": str(5000 + list(VARIANTS).index(variant)),
        "database.include.list": DATABASE,
        "table.include.list": ",".join(tables),
        "topic.prefix": prefix,
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / f"{prefix}-history"),
        "snapshot.select.statement.overrides": f"{DATABASE}.busy",
        f"snapshot.select.statement.overrides.{DATABASE}.busy": SLOW_BUSY,
        "signal.data.collection": signals,
        "incremental.snapshot.chunk.size": "7",
        "skipped.operations": "none",
        "provide.transaction.metadata": "false",
        "include.schema.changes": "false",
        "header.converter": "org.apache.kafka.connect.storage.StringConverter",
        **(_avro_converters(registry_url) if variant == "avro" else _json_converters()),
        **VARIANTS[variant],
    }


def _json_converters() -> dict[str, str]:
    return {
        f"{side}.converter{key}": value
        for side in ("key", "value")
        for key, value in (("", _JSON), (".schemas.enable", "true"), (".replace.null.with.default", "false"))
    }


def _avro_converters(registry_url: str) -> dict[str, str]:
    """Apicurio's converter with the frame that Confluent's has: ids of four bytes."""
    values = {
        "": _AVRO,
        ".apicurio.registry.url": registry_url.removesuffix("/ccompat/v7") + "/registry/v2",
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.as-confluent": "true",
        ".apicurio.registry.use-id": "contentId",
        ".apicurio.registry.headers.enabled": "false",
    }
    return {f"{side}.converter{key}": value for side in ("key", "value") for key, value in values.items()}
