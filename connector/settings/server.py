"""properties -> ServerSettings: where health, metrics and the REST interface answer, and who may use it.

Names: Quarkus's, as Debezium Server has them, for health and metrics; Kafka Connect's for REST.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import (
    BOOLEAN,
    TABLE_NAME,
    TEXT,
    InvalidValue,
    ValueType,
    split_list,
    whole_number,
)

LOOPBACK = "127.0.0.1"
_ORIGIN = re.compile(r"https?://[^/\s]+")


def _parse_listeners(text: str) -> tuple[str, ...]:
    listeners = split_list(text)
    for listener in listeners:
        try:
            parts = urlsplit(listener)
            good = parts.scheme.lower() in {"http", "https"} and parts.port is not None and parts.path in {"", "/"}
        except ValueError:
            good = False
        if not good:
            raise InvalidValue("{} is not a list of listeners", "write http://host:port or https://host:port")
    return listeners


def _parse_origins(text: str) -> tuple[str, ...]:
    origins = split_list(text)
    if not all(origin == "*" or _ORIGIN.fullmatch(origin) for origin in origins):
        raise InvalidValue("{} is not a list of origins", "write http://host:port, or * for all")
    return origins


def _parse_user_info(text: str) -> str:
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise InvalidValue("{} is not a login", "write user:password")
    return text


HEALTH_PORT = Option(
    name="quarkus.http.port",
    kind=whole_number(-1, 65535),
    default=8080,
    importance="medium",
    doc="Port of health (`/q/health`) and metrics (`/metrics`); 0: any free one, -1: none.",
)
HEALTH_HOST = Option(
    name="quarkus.http.host",
    kind=TEXT,
    default=LOOPBACK,
    importance="medium",
    doc="Address that this port is bound to; 0.0.0.0 for all, as probes of Kubernetes need.",
)
LISTENERS = Option(
    name="listeners",
    kind=ValueType("list", _parse_listeners),
    default=(f"http://{LOOPBACK}:8083",),
    importance="medium",
    doc="Where the REST interface, the page, health and metrics answer, as in Kafka Connect; empty: nowhere.",
    empty=True,
)
USER_INFO = Option(
    name="rest.basic.auth.user.info",
    kind=ValueType("password", _parse_user_info),
    default=None,
    importance="medium",
    doc="`user:password` that requests to the listeners must carry (basic authentication); none by default.",
    secret=True,
)
ORIGINS = Option(
    name="access.control.allow.origin",
    kind=ValueType("list", _parse_origins),
    default=(),
    importance="low",
    doc="Other origins whose pages may call the REST interface, separated by commas; `*`: all.",
)
KEYSTORE = Option(
    name="listeners.https.ssl.keystore.location",
    kind=TEXT,
    default=None,
    importance="medium",
    doc="PEM file with the certificate and its private key, for https listeners.",
)
KEY_PASSWORD = Option(
    name="listeners.https.ssl.key.password",
    kind=ValueType("password", str),
    default=None,
    importance="low",
    doc="Password of that private key.",
    secret=True,
)
API_ENABLED = Option(
    name="debezium.api.enabled",
    kind=BOOLEAN,
    default=True,
    importance="low",
    doc="Whether `POST /api/signals` accepts signals; 503 if not. In Debezium Server the default is false.",
)
CONFIG_TABLE = Option(
    name="config.storage.iceberg.table-name",
    kind=TABLE_NAME,
    default="_icebridge_connectors",
    importance="low",
    doc="Table in which `icebridge serve` keeps its connectors and whether they run.",
)
OPTIONS: tuple[Option[object], ...] = (
    HEALTH_PORT,
    HEALTH_HOST,
    LISTENERS,
    USER_INFO,
    ORIGINS,
    KEYSTORE,
    KEY_PASSWORD,
    API_ENABLED,
    CONFIG_TABLE,
)


@attrs.frozen
class ServerSettings:
    """Where and for whom the HTTP servers answer."""

    health_port: int = 8080
    health_host: str = LOOPBACK
    listeners: tuple[str, ...] = (f"http://{LOOPBACK}:8083",)
    user_info: str | None = attrs.field(default=None, repr=False)
    origins: tuple[str, ...] = ()
    keystore: str | None = None
    key_password: str | None = attrs.field(default=None, repr=False)
    takes_signals: bool = True
    config_table: str = "_icebridge_connectors"

    @property
    def is_health_port_given(self) -> bool:
        """Whether the user asked for this port: the default one is given up where another process has it."""
        return (self.health_host, self.health_port) != (HEALTH_HOST.default, HEALTH_PORT.default)

    @property
    def are_listeners_given(self) -> bool:
        """Whether the user asked for these listeners."""
        return self.listeners != LISTENERS.default


def build(reader: ConfigReader) -> ServerSettings:
    """Read the servers' part; faults go to the reader."""
    settings = ServerSettings(
        health_port=reader.get(HEALTH_PORT),
        health_host=reader.get(HEALTH_HOST),
        listeners=reader.get(LISTENERS),
        user_info=reader.get(USER_INFO),
        origins=reader.get(ORIGINS),
        keystore=reader.get(KEYSTORE),
        key_password=reader.get(KEY_PASSWORD),
        takes_signals=reader.get(API_ENABLED),
        config_table=reader.get(CONFIG_TABLE),
    )
    entry = reader.entry(LISTENERS)
    if entry and settings.keystore is None and any(one.lower().startswith("https:") for one in settings.listeners):
        reader.add_fault(entry, "has an https listener and no certificate", f"set {KEYSTORE.name}")
    return settings
