"""Client settings -> where a cluster is and how to talk to it: hashable, and small enough to go with every task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs

HostPort = tuple[str, int]

_DEFAULTS = {
    "client.id": "icebridge",
    "client.rack": "",
    "connections.max.idle.ms": "180000",
    "retry.backoff.ms": "100",
    "retry.backoff.max.ms": "1000",
    "security.protocol": "PLAINTEXT",
    "socket.connection.setup.timeout.ms": "10000",
    "socket.receive.buffer.bytes": "0",
    "socket.send.buffer.bytes": "0",
    "socket.timeout.ms": "30000",
}
"""As in Java, but idle connections are closed sooner than load balancers cut them (Azure's: 4 minutes)."""

_MOST_MS = 2**31 - 1


@attrs.frozen(slots=False)
class ClusterAddress:
    """Where a cluster is and how to log in: librdkafka's settings, hashable."""

    settings: tuple[tuple[str, str], ...] = attrs.field(repr=False)

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> ClusterAddress:
        """Keep settings."""
        return cls(tuple(sorted(settings.items())))

    @cached_property
    def by_name(self) -> Mapping[str, str]:
        """The settings, with the defaults of those that are not given."""
        return {**_DEFAULTS, **dict(self.settings)}

    @property
    def hosts(self) -> list[HostPort]:
        """The brokers to begin with."""
        split = (server.strip().rpartition(":") for server in self.by_name["bootstrap.servers"].split(","))
        return [(host.rpartition("://")[2].removeprefix("[").removesuffix("]"), int(port)) for host, _, port in split]

    @property
    def security_protocol(self) -> str:
        """PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return self.by_name["security.protocol"].upper()

    @property
    def client_id(self) -> str:
        """How the brokers' logs, metrics and quotas name us."""
        return self.by_name["client.id"]

    @property
    def rack(self) -> str:
        """Where we are, so that brokers can name a nearer replica; empty for nowhere."""
        return self.by_name["client.rack"]

    def seconds(self, name: str) -> float:
        """Return a setting of milliseconds, in seconds: no more than a socket can wait, which is 24 days."""
        return min(int(self.by_name[name]), _MOST_MS) / 1000


def format_host(host: HostPort) -> str:
    """Return a broker as messages name it."""
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"
