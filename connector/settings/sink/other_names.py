"""key of another program -> what to write instead of it: where names are alike, what is meant is often not alike.

Names: Debezium's and Confluent's JDBC sinks, Data Prepper's Iceberg sink, Kafka Connect's worker, and what people try
first.
"""

from __future__ import annotations

from collections.abc import Mapping

from connector.settings import server
from connector.settings.iceberg import catalog, primary_key, routing, schema_evolution, tables
from connector.settings.iceberg.maintenance import options as maintenance
from connector.settings.iceberg.new_tables import declared_schema
from connector.settings.iceberg.new_tables import settings as new_tables
from connector.settings.kafka import batching, error_handling, kafka

MEANT: Mapping[str, str] = {
    "auto.create": routing.AUTO_CREATE.name,
    "auto_create": routing.AUTO_CREATE.name,
    "auto.evolve": schema_evolution.FIELD_ADDITION.name,
    "commit_interval": batching.INTERVAL.name,
    "delete.enabled": f"{tables.KEEP_DELETES.name}=false",
    "dlq": error_handling.TOPIC.name,
    "flush_interval": batching.INTERVAL.name,
    "hard.deletes": f"{tables.KEEP_DELETES.name}=false",
    "iceberg.tables.convert-equality-deletes-enabled": maintenance.CONVERT.name,
    "identifier_columns": primary_key.ID_COLUMNS.name,
    "insert.mode": tables.UPSERT.name,
    "kafka.bootstrap.servers": kafka.BOOTSTRAP_SERVERS.name,
    "namespace": catalog.SINK_CATALOG.namespace.name,
    "operation": tables.OP_FIELD.name,
    "rest.host.name": server.LISTENERS.name,
    "rest.port": server.LISTENERS.name,
    "schema.partition_spec": new_tables.PARTITION_BY.name,
    "schema_evolution": schema_evolution.FIELD_ADDITION.name,
    "table_identifier": routing.NAME_FORMAT.name,
    "table_location": declared_schema.LOCATION.name,
    "table_properties": f"{new_tables.CREATE_PROPS.name}<property>",
    "upsert.enabled": tables.UPSERT.name,
}
