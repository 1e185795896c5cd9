"""case -> statements: what a Flink user writes to bring a topic of Debezium's JSON into an Iceberg table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from benchmarks.generate import ENVELOPE_COLUMNS, FLATTENED_COLUMNS, VALUE_COLUMNS
from benchmarks.peers.plan import COMMIT_MS, CORES
from benchmarks.plan import Case
from benchmarks.session import CATALOG, sql_type

EVENTS = "`default_catalog`.`default_database`.`events`"
CONFIGURATION = {
    "parallelism.default": str(CORES),
    "execution.checkpointing.interval": f"{COMMIT_MS} ms",
    "table.local-time-zone": "UTC",
}
# An envelope has these outside of its rows, where the format gives them as metadata.
_METADATA = {
    "ingested": "TIMESTAMP_LTZ(3) METADATA FROM 'value.ingestion-timestamp' VIRTUAL",
    "source": "MAP<STRING, STRING> METADATA FROM 'value.source.properties' VIRTUAL",
}
_FROM_METADATA = {
    "__deleted": "'false'",
    "__table": "`source`['table']",
    "__source_ts_ns": "CAST(`source`['ts_ns'] AS BIGINT)",
    "__db": "`source`['db']",
    "__ts_ms": "EXTRACT(EPOCH FROM `ingested`) * 1000 + EXTRACT(MILLISECOND FROM `ingested`)",
}


def statements(case: Case, bootstrap: str, catalog: Mapping[str, str]) -> Iterator[str]:
    """Catalog, tables, and last the INSERT that is waited for."""
    columns = [name for name in (ENVELOPE_COLUMNS if case.upsert else FLATTENED_COLUMNS) if name not in case.lacks]
    given = {key: value for key, value in catalog.items() if key != "type"}
    yield f"CREATE CATALOG `{CATALOG}` WITH ({_options({'type': 'iceberg', 'catalog-impl': _JDBC} | given)})"
    yield f"CREATE DATABASE IF NOT EXISTS `{CATALOG}`.`{case.namespace}`"
    name = ".".join(f"`{part}`" for part in (CATALOG, *case.table.split(".")))
    yield f"CREATE TABLE {name} ({_columns(columns, case.upsert)}) WITH ('format-version' = '2')"
    read = [*_physical(case)]
    metadata = [f"`{column}` {kind}" for column, kind in (_METADATA.items() if case.upsert else ())]
    body = ", ".join([_columns(read, case.upsert), *metadata])
    yield f"CREATE TABLE {EVENTS} ({body}) WITH ({_options(_source(case, bootstrap))})"
    hint = "/*+ OPTIONS('upsert-enabled' = 'true') */ " if case.upsert else ""
    chosen = ", ".join(_FROM_METADATA[column] if column not in read else f"`{column}`" for column in columns)
    yield f"INSERT INTO {name} {hint}SELECT {chosen} FROM {EVENTS}"


_JDBC = "org.apache.iceberg.jdbc.JdbcCatalog"


def _physical(case: Case) -> tuple[str, ...]:
    return VALUE_COLUMNS if case.upsert else FLATTENED_COLUMNS


def _columns(names: list[str], keyed: bool) -> str:
    """Columns with their types, which are called in Flink as in Spark; with a key no rows are kept in state."""
    columns = [f"`{name}` {sql_type(name)}{' NOT NULL' if name == 'id' else ''}" for name in names]
    return ", ".join([*columns, *(["PRIMARY KEY (`id`) NOT ENFORCED"] if keyed else [])])


def _source(case: Case, bootstrap: str) -> dict[str, str]:
    return {
        "connector": "kafka",
        "topic": case.full_topic,
        "properties.bootstrap.servers": bootstrap,
        "properties.group.id": case.name,
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
        "format": "debezium-json" if case.upsert else "json",
    }


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
