"""A connector -> what is seen on the wire when it commits: a kill there leaves most behind that is half done."""

from __future__ import annotations

import re

from attrs import frozen

from tests.chaos.connectors import LAKE, Connector, Kind
from tests.chaos.worker import PREFIX

_OFFSETS_TABLE = "_debezium_offset_storage"
_PRODUCE, _OFFSET_COMMIT = 0, 8


@frozen
class Moment:
    """A request of a connector that passes the relays of this name."""

    name: str
    relay: str
    pattern: re.Pattern[bytes]

    def is_seen_in(self, data: bytes) -> bool:
        """Whether these bytes of a client are such a request."""
        return self.pattern.search(data) is not None


def moments_of(connector: Connector) -> tuple[Moment, ...]:
    """All that is known of a connector."""
    if connector.kind is Kind.SOURCE:
        return (Moment("as it sends events", "broker", _call(_PRODUCE, f"{LAKE}.")),)
    stored = Moment("as its offsets are stored", "catalog", _commit(connector, re.escape(_OFFSETS_TABLE)))
    group = Moment("as its group follows", "broker", _call(_OFFSET_COMMIT, f"connect-{PREFIX}-{connector.name}"))
    if connector.kind is Kind.INDEX:
        written = Moment("as it writes documents", "opensearch", re.compile(rb"\A(?:POST|PUT) /[^ ]*_bulk"))
    else:
        written = Moment("as it commits", "catalog", _commit(connector, "(?!_)[^/]+"))
    return written, stored, group


def _commit(connector: Connector, table: str) -> re.Pattern[bytes]:
    """A catalog learns of new metadata of a table; only then are its clients told of the file."""
    return re.compile(f"/warehouse/{connector.catalog}/[^/]+/{table}/metadata/[^/]+\\.metadata\\.json".encode())


def _call(key: int, text: str) -> re.Pattern[bytes]:
    """A request of Kafka's: 4 bytes of length, 2 that say which, and the names of what it is about."""
    return re.compile(rb"\A.{4}" + re.escape(key.to_bytes(2, "big")) + b".*" + re.escape(text.encode()), re.DOTALL)
