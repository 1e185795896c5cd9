"""key of another program -> what to write instead of it: where names are alike, what is meant is often not alike.

Names: Debezium's and Confluent's JDBC sinks, Kafka Connect's worker, and what people try first.
"""

from __future__ import annotations

from collections.abc import Mapping

from connector.settings import server
from connector.settings.iceberg import catalog, routing, tables
from connector.settings.kafka import kafka

MEANT: Mapping[str, str] = {
    "auto.create": routing.AUTO_CREATE.name,
    "auto.evolve": tables.FIELD_ADDITION.name,
    "delete.enabled": f"{tables.KEEP_DELETES.name}=false",
    "hard.deletes": f"{tables.KEEP_DELETES.name}=false",
    "insert.mode": tables.UPSERT.name,
    "kafka.bootstrap.servers": kafka.BOOTSTRAP_SERVERS.name,
    "namespace": catalog.SINK_CATALOG.namespace.name,
    "rest.host.name": server.LISTENERS.name,
    "rest.port": server.LISTENERS.name,
    "schema.evolution": tables.FIELD_ADDITION.name,
    "upsert.enabled": tables.UPSERT.name,
}
