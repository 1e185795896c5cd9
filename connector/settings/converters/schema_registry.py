"""properties -> RegistrySettings: where the schemas of keys or values are, and how to get in.

Names are those of Confluent's converters; key and value have settings of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import attrs

from connector.settings.configdef.option import Importance, Option, format_names
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import TEXT, InvalidValue, ValueType, one_of, split_list
from connector.settings.converters.converter_classes import short_names
from connector.settings.kafka import security
from connector.settings.kafka import stores as key_stores
from serde.wire_format import WireFormat

_TLS = {
    "truststore.location": "PEM file of the CAs that its certificate is checked against",
    "truststore.type": "PEM (JKS cannot be read here)",
    "truststore.password": "accepted; a PEM file has none",
    "keystore.location": "PEM file with the client's certificate and key, if it asks for them",
    "keystore.type": "PEM",
    "keystore.password": "accepted; a PEM file has none",
    "key.password": "password of the client's key",
    "endpoint.identification.algorithm": "https; the check of the host name cannot be turned off",
}
_OF_CLOUD: Mapping[str, str | None] = {"logical.cluster": "", "identity.pool.id": None}
_BEARER_SOURCES: Mapping[str, tuple[tuple[str, ...], Mapping[str, str | None]]] = {
    "STATIC_TOKEN": (("token",), _OF_CLOUD),
    "OAUTHBEARER": (("issuer.endpoint.url", "client.id", "client.secret"), {**_OF_CLOUD, "scope": ""}),
}
"""What each way to a token needs; what else it takes, and what the client is to have where nobody says it."""
_BEARER = {
    "token": "with STATIC_TOKEN, the token",
    "issuer.endpoint.url": "with OAUTHBEARER, URL of the token endpoint",
    "client.id": "with OAUTHBEARER, id of the client",
    "client.secret": "with OAUTHBEARER, secret of the client",
    "scope": "with OAUTHBEARER, scope of the token",
    "logical.cluster": "its cluster in Confluent Cloud",
    "identity.pool.id": "the identity pool in Confluent Cloud",
}
HTTP_URL = re.compile(r"https?://[^/\s]+\S*")
_SECRET = frozenset({"truststore.password", "keystore.password", "key.password", "token", "client.secret"})
_FILES = frozenset({"ssl.ca.location", "ssl.key.location", "ssl.certificate.location", "ssl.key.password"})


def _parse_urls(text: str) -> str:
    urls = split_list(text)
    if not urls or not all(HTTP_URL.fullmatch(url) for url in urls):
        raise InvalidValue("{} is not a list of URLs", "write http://host:port, several separated by commas")
    return ",".join(urls)


def _parse_user(text: str) -> str:
    if ":" not in text:
        raise InvalidValue("{} has no colon", "write user:password")
    return text


@attrs.frozen
class RegistryOptions:
    """The options of a side, key or value: `tls` by name below `schema.registry.ssl.`, `bearer` below `bearer.auth.`"""

    url: Option[str | None]
    source: Option[str]
    user: Option[str | None]
    bearer_source: Option[str | None]
    bearer: Mapping[str, Option[str | None]]
    tls: Mapping[str, Option[str | None]]

    @property
    def all(self) -> tuple[Option[object], ...]:
        """Every option, in the order documents show them."""
        return (self.url, self.source, self.user, self.bearer_source, *self.bearer.values(), *self.tls.values())


def name_within_cloud_events(side: str) -> Callable[[str], tuple[str, ...]]:
    """Return what names a setting of the Avro converter within Debezium's CloudEventsConverter, which is for values."""
    return lambda name: (f"{side}.converter.avro.{name}",) if side == "value" else ()


def declare_options(side: str) -> RegistryOptions:
    """Declare the options of a side."""
    prefix = f"{side}.converter."
    within = name_within_cloud_events(side)
    return RegistryOptions(
        url=Option(
            name=f"{prefix}schema.registry.url",
            kind=ValueType("list", _parse_urls),
            default=None,
            importance="high",
            doc=f"With converters that need a registry (Confluent's API): its URLs for the {side}s.",
            aliases=within("schema.registry.url"),
        ),
        source=Option(
            name=f"{prefix}basic.auth.credentials.source",
            kind=one_of("URL", "USER_INFO"),
            default="URL",
            importance="medium",
            doc="Where the registry's user and password are given: in its URL, or in basic.auth.user.info (USER_INFO).",
            aliases=within("basic.auth.credentials.source"),
        ),
        user=Option(
            name=f"{prefix}basic.auth.user.info",
            kind=ValueType("string", _parse_user),
            default=None,
            importance="medium",
            doc="user:password for the registry, with USER_INFO.",
            aliases=(f"{prefix}schema.registry.basic.auth.user.info", *within("basic.auth.user.info")),
            secret=True,
        ),
        bearer_source=Option(
            name=f"{prefix}bearer.auth.credentials.source",
            kind=one_of(*_BEARER_SOURCES),
            default=None,
            importance="medium",
            doc=f"Registry of record {side}s: where the token comes from, if it asks for one.",
            aliases=_name_bearer(side, "bearer.auth.credentials.source"),
        ),
        bearer=_declare_family(side, "bearer.auth.", _BEARER, "medium", _name_bearer),
        tls=_declare_family(
            side, "schema.registry.ssl.", _TLS, "low", lambda side, name: name_within_cloud_events(side)(name)
        ),
    )


def _declare_family(
    side: str,
    prefix: str,
    docs: Mapping[str, str],
    importance: Importance,
    others: Callable[[str, str], tuple[str, ...]],
) -> dict[str, Option[str | None]]:
    """Declare options whose names begin alike, by the rest of them; `others` gives the other names of each."""
    return {
        name: Option(
            name=f"{side}.converter.{prefix}{name}",
            kind=TEXT,
            default=None,
            importance=importance,
            doc=f"Registry of record {side}s: {doc}.",
            aliases=others(side, f"{prefix}{name}"),
            secret=name in _SECRET,
            empty=name == "endpoint.identification.algorithm",
        )
        for name, doc in docs.items()
    }


def _name_bearer(side: str, name: str) -> tuple[str, ...]:
    """Return the other names that a setting of the login by a token has."""
    return (f"{side}.converter.schema.registry.{name}", *name_within_cloud_events(side)(name))


@attrs.frozen
class RegistrySettings:
    """What the registry's client is given, as sorted pairs; no representation shows a value."""

    client: tuple[tuple[str, str], ...] = attrs.field(repr=lambda pairs: format_names(dict(pairs)))


def build(reader: ConfigReader, side: RegistryOptions, *, wire_format: WireFormat | None) -> RegistrySettings | None:
    """Read a side's registry; faults go to the reader. None when its format needs none."""
    url, source, user = reader.get(side.url), reader.get(side.source), reader.get(side.user)
    tls = {f"ssl.{name}": text for name, option in side.tls.items() if (text := reader.get(option)) is not None}
    bearer = _read_bearer(reader, side)
    if wire_format is None or not wire_format.needs_registry:
        return None
    if url is None:
        if reader.entry(side.url) is None:
            converter = next(iter(short_names(wire_format.converter_classes)), "CloudEventsConverter with Avro data")
            reader.add_missing(
                side.url.name, f"is missing, and the {converter} needs it", "add the URL of the registry"
            )
        return None
    client = {"url": url, **bearer, **_translate_tls(reader, side, tls)}
    if source == "USER_INFO":
        if user is None and reader.entry(side.user) is None:
            reader.add_missing(side.user.name, "is missing, and USER_INFO needs it", "add user:password")
        if bearer and (entry := reader.entry(side.bearer_source)) is not None:
            reader.add_fault(entry, f"is one login, {side.source.name} another", "keep one of them")
        client["basic.auth.user.info"] = user or ""
    return RegistrySettings(tuple(sorted(client.items())))


def _read_bearer(reader: ConfigReader, side: RegistryOptions) -> dict[str, str]:
    """Return the login by a token as the client has it, which asks for what Confluent Cloud alone needs."""
    source = reader.get(side.bearer_source)
    needed, more = ((), {}) if source is None else _BEARER_SOURCES[source]
    taken: dict[str, str | None] = {**dict.fromkeys(needed), **more}
    for name, option in side.bearer.items():
        text, entry = reader.get(option), reader.entry(option)
        if name in taken:
            taken[name] = text or taken[name]
        elif entry is not None:
            reader.notes.append(f"{entry.key}: has no effect without another {side.bearer_source.name}")
        if name in needed and entry is None:
            reader.add_missing(option.name, f"is missing, and {source} needs it", "add it")
    told = {f"bearer.auth.{name}": text for name, text in taken.items() if text is not None}
    return {} if source is None else {"bearer.auth.credentials.source": source, **told}


def _translate_tls(reader: ConfigReader, side: RegistryOptions, tls: Mapping[str, str]) -> dict[str, str]:
    """TLS settings as the client has them: files in PEM only."""
    native, problems = security.translate({"ssl.endpoint.identification.algorithm": "https", **tls})
    for problem in problems:
        _refuse(reader, side, problem.key, problem.what, problem.todo)
    check = native.pop("ssl.endpoint.identification.algorithm")
    if check != "https":
        key = "ssl.endpoint.identification.algorithm"
        _refuse(reader, side, key, "turns the check of the host name off, which is not supported", "leave it out")
    for name, store in ((key_stores.TRUSTSTORE, "truststore"), (key_stores.KEYSTORE, "keystore")):
        if name in native:
            todo = f"convert it to PEM and set ssl.{store}.type=PEM"
            _refuse(reader, side, f"ssl.{store}.location", "is not a PEM store", todo)
    return {name: text for name, text in native.items() if name in _FILES}


def _refuse(reader: ConfigReader, side: RegistryOptions, key: str, what: str, todo: str) -> None:
    option = side.tls[key.removeprefix("ssl.")]
    entry = reader.entry(option)
    if entry is not None:
        reader.add_fault(entry, what, todo)
    else:
        reader.add_missing(option.name, what, todo)
