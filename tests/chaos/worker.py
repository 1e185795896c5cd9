"""A Connect worker that keeps offsets in Kafka, with Debezium's PostgreSQL connector on it.

One that was killed resumes from the offsets that it stored last, and sends again what came after them.
"""

from __future__ import annotations

from connector.demo.servers.ports import LOOPBACK
from tests.chaos.tables import MARKER, SCHEMA, TABLES
from tests.harness.waiting import call_until_answered
from tests.interop.connect import Connect, ConnectorFailed, worker_properties
from tests.interop.postgres import DATABASE, USER

PREFIX, CONNECTOR = "chaos", "chaos"
TRANSACTIONS = f"{PREFIX}.transaction"


def topic(table: str) -> str:
    """The topic that Debezium sends a table's changes to."""
    return f"{PREFIX}.{SCHEMA}.{table}"


class Worker(Connect):
    """A distributed worker, alone in its group."""

    program = "org.apache.kafka.connect.cli.ConnectDistributed"
    plugins = ("postgres-source",)
    # It lives for a minute: what takes long to compile is not worth it.
    java_options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

    def create_when_ready(self, name: str, config: dict[str, str]) -> None:
        """Create a connector as soon as the worker has joined its group. ConnectorFailed when it never does."""
        call_until_answered(lambda: self.create(name, config), (OSError, ConnectorFailed), self.ready_s, step_s=0.5)

    def has_left_snapshot(self) -> bool:
        """Tell whether the connector has stored an offset that is none of its snapshot: it never begins that anew."""
        stored = self._call("GET", f"/connectors/{CONNECTOR}/offsets")["offsets"]
        return bool(stored) and not any("snapshot" in name for one in stored for name in one["offset"])

    def restart_failed(self) -> bool:
        """Have the connector's failed task started again, as an operator does; tell whether there was one."""
        try:
            status = self._call("GET", f"/connectors/{CONNECTOR}/status")
            if all(part["state"] != "FAILED" for part in (status["connector"], *status["tasks"])):
                return False
            self._call("POST", f"/connectors/{CONNECTOR}/restart?includeTasks=true&onlyFailed=true")
        except (OSError, ConnectorFailed):  # it is away, or rebalances
            return False
        return True

    def _properties(self) -> dict[str, str]:
        single = {
            f"{kind}.storage.{key}": value
            for kind in ("offset", "config", "status")
            for key, value in (("topic", f"connect-{kind}"), ("replication.factor", "-1"))
        }
        shared = worker_properties(self.home, self.bootstrap_servers, self.url)
        del shared["offset.storage.file.filename"]  # the settings of a topic begin so too
        return {
            **shared,
            **single,
            "group.id": "connect",
            # Debezium names its plugins; to look for them in all classes takes seconds.
            "plugin.discovery": "service_load",
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            # Nobody else is in the group: who was killed is not waited for.
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.flush.interval.ms": "2000",
        }


def debezium(port: int) -> dict[str, str]:
    """The configuration of the connector, which finds PostgreSQL at a port of its own."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": LOOPBACK,
        "database.port": str(port),
        "database.user": USER,
        "database.password": "any",
        "database.dbname": DATABASE,
        "plugin.name": "pgoutput",
        "slot.name": "chaos",
        "slot.max.retries": "100",
        "slot.retry.delay.ms": "1000",
        "publication.autocreate.mode": "filtered",
        "topic.prefix": PREFIX,
        "table.include.list": ",".join(f"{SCHEMA}.{name}" for name in (*(table.name for table in TABLES), MARKER)),
        "provide.transaction.metadata": "true",
        "decimal.handling.mode": "precise",
        "retriable.restart.connector.wait.ms": "1000",
    }
