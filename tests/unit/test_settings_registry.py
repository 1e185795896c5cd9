"""properties -> settings of the schema registry, per side; names are Confluent's."""

from __future__ import annotations

import pytest

from connector.errors import ConfigError
from connector.settings import SinkSettings, load
from connector.settings.converters.apicurio import ApicurioSettings
from connector.settings.converters.schema_registry import RegistrySettings

GOOD = {"bootstrap.servers": "localhost:9092", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
AVRO, STRING = "io.confluent.connect.avro.AvroConverter", "org.apache.kafka.connect.storage.StringConverter"


def sink(**given: str) -> SinkSettings:
    """Settings of a good configuration with these keys, underscores for dots, over it."""
    return load([], GOOD | {key.replace("__", "."): text for key, text in given.items()}, {})


def test_key_and_value_differ() -> None:
    """Each side has its converter and its registry."""
    events = sink(
        key__converter=STRING,
        value__converter=AVRO,
        value__converter__schema__registry__url="http://a:1, http://b:2",
    ).events
    assert (events.key_format, events.key_registry, events.value_format) == ("string", None, "avro")
    assert events.value_registry is not None
    assert events.value_registry.client == (("url", "http://a:1,http://b:2"),)


@pytest.mark.parametrize("name", ["AvroConverter", AVRO])
def test_short_and_full_names(name: str) -> None:
    """Connect takes the short name of a class too."""
    assert sink(key__converter=name, key__converter__schema__registry__url="http://r").events.key_format == "avro"


def test_bytes_converter() -> None:
    """ByteArrayConverter hands values on as they are."""
    name = "org.apache.kafka.connect.converters.ByteArrayConverter"
    assert sink(value__converter=name).events.value_format == "bytes"


def test_login_and_tls() -> None:
    """User and password, PEM stores of both sides of TLS; the second name of the login counts."""
    prefix = "value__converter__schema__registry__"
    events = sink(
        value__converter=AVRO,
        **{
            f"{prefix}url": "https://r",
            f"{prefix}basic__auth__user__info": "me:s3cret",
            "value__converter__basic__auth__credentials__source": "USER_INFO",
            f"{prefix}ssl__truststore__type": "PEM",
            f"{prefix}ssl__truststore__location": "/ca.pem",
            f"{prefix}ssl__keystore__type": "PEM",
            f"{prefix}ssl__keystore__location": "/me.pem",
            f"{prefix}ssl__key__password": "pw",
        },
    ).events
    assert events.value_registry is not None
    assert dict(events.value_registry.client) == {
        "url": "https://r",
        "basic.auth.user.info": "me:s3cret",
        "ssl.ca.location": "/ca.pem",
        "ssl.key.location": "/me.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.password": "pw",
    }
    assert "s3cret" not in repr(events)


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("basic.auth.credentials.source", "USER_INFO", "basic.auth.user.info: is missing, and USER_INFO needs it"),
        ("basic.auth.user.info", "s3cret", "basic.auth.user.info: the value has no colon; write user:password"),
        ("schema.registry.ssl.truststore.location", "/a.jks", "ssl.truststore.location: is not a PEM store"),
        ("schema.registry.ssl.endpoint.identification.algorithm", "", "turns the check of the host name off"),
    ],
)
def test_faults(key: str, text: str, said: str) -> None:
    """What the client could not use is refused at start, without secrets."""
    given = {
        "value.converter": AVRO,
        "value.converter.schema.registry.url": "https://r",
        f"value.converter.{key}": text,
    }
    with pytest.raises(ConfigError) as caught:
        load([], GOOD | given, {})
    assert any(said in fault for fault in caught.value.faults), caught.value.faults
    assert "s3cret" not in str(caught.value)


CLOUD = "io.debezium.converters.CloudEventsConverter"


def test_cloud_events_name_their_serializers() -> None:
    """Debezium's page, "Example configuration": JSON around Avro, the registry named within; or all of it Avro."""
    url = {"value__converter__avro__schema__registry__url": "http://r"}
    data = sink(value__converter=CLOUD, value__converter__data__serializer__type="avro", **url).events
    assert data.value_format == "cloudevents-avro"
    assert isinstance(data.value_registry, RegistrySettings)
    whole = sink(value__converter="CloudEventsConverter", value__converter__serializer__type="avro", **url).events
    assert (whole.value_format, whole.value_registry) == ("avro", data.value_registry)
    plain = sink(value__converter=CLOUD, value__converter__json__schemas__enable="false").events
    assert (plain.value_format, plain.value_registry) == ("auto", None)
    assert sink(value__converter__serializer__type="avro").events.value_format == "auto"


def test_cloud_events_tell_nothing_but_changes() -> None:
    """Their converter has no value for BEGIN and END, so no commit could hold whole transactions; nor for DDL."""
    with pytest.raises(ConfigError, match=r"transaction\.topic: tells nothing"):
        sink(value__converter=CLOUD, transaction__topic="p.transaction")
    with pytest.raises(ConfigError, match=r"schema-change-topics: tells nothing"):
        load([], GOOD | {"value.converter": CLOUD, "debezium.sink.iceberg.schema-change-topics": "p"}, {})


def test_cloud_events_have_either_registry() -> None:
    """Its Avro converter is Apicurio's where that one's URL is given."""
    given = {"value__converter__avro__apicurio__registry__url": "http://r/apis/registry/v2"}
    events = sink(value__converter=CLOUD, value__converter__data__serializer__type="avro", **given).events
    assert isinstance(events.value_registry, ApicurioSettings)
    with pytest.raises(ConfigError, match="is missing, and the CloudEventsConverter with Avro data needs it"):
        sink(value__converter=CLOUD, value__converter__data__serializer__type="avro")


APICURIO = {"value__converter": "io.apicurio.registry.utils.converter.AvroConverter"}


@pytest.mark.parametrize("family", ["apicurio.auth", "apicurio.registry.auth"])
def test_apicurio_lets_in_who_has_a_token(family: str) -> None:
    """By the names of its converters of version 2 and of version 3; half of them, or a user beside them, is refused."""
    url = {"value__converter__apicurio__registry__url": "http://r/apis/registry/v3"}
    given = {"service.token.endpoint": "https://idp/token", "client.id": "me", "client.secret": "s3cret"}
    named = {f"value.converter.{family}.{name}".replace(".", "__"): text for name, text in given.items()}
    registry = sink(**APICURIO, **url, **named).events.value_registry
    assert isinstance(registry, ApicurioSettings) and "s3cret" not in repr(registry)
    assert (registry.token_endpoint, registry.client_id, registry.client_secret) == tuple(given.values())
    half = dict(list(named.items())[:2])
    with pytest.raises(ConfigError, match=r"value\.converter\.apicurio\.auth\.client\.secret is missing"):
        sink(**APICURIO, **url, **half)
    with pytest.raises(ConfigError, match="is given too"):
        sink(**APICURIO, **url, **named, value__converter__apicurio__auth__username="u")


@pytest.mark.parametrize(
    ("version", "given", "ids"),
    [
        ("v2", {}, ("globalId", 8)),
        ("v3", {}, ("contentId", 4)),
        ("v3", {"use-id": "globalId"}, ("globalId", 4)),
        ("v3", {"id-handler": "io.apicurio.registry.serde.Legacy8ByteIdHandler"}, ("contentId", 8)),
        ("v3", {"headers.enabled": "true"}, ("contentId", 8)),
        ("v2", {"id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler"}, ("globalId", 4)),
        ("v2", {"as-confluent": "true", "use-id": "contentId"}, ("contentId", 4)),
    ],
)
def test_ids_are_those_that_a_version_of_apicurio_writes(version: str, given: dict[str, str], ids: object) -> None:
    """Apicurio 3 writes content ids of four bytes where nobody says otherwise, Apicurio 2 global ids of eight."""
    url = {"value__converter__apicurio__registry__url": f"http://r/apis/registry/{version}"}
    named = {f"value__converter__apicurio__registry__{name}": text for name, text in given.items()}
    registry = sink(**APICURIO, **url, **named).events.value_registry
    assert isinstance(registry, ApicurioSettings) and (registry.use_id, registry.id_bytes) == ids


@pytest.mark.parametrize("family", ["apicurio__auth", "apicurio__registry__auth"])
def test_a_login_has_the_names_of_either_version_of_apicurio(family: str) -> None:
    """Apicurio 3 has `registry` in the names of a login, Apicurio 2 has not."""
    login = {f"value__converter__{family}__{name}": name for name in ("username", "password")}
    url = {"value__converter__apicurio__registry__url": "http://r"}
    registry = sink(**APICURIO, **url, **login).events.value_registry
    assert isinstance(registry, ApicurioSettings) and (registry.user, registry.password) == ("username", "password")


REGISTRY = {"value.converter": AVRO, "value.converter.schema.registry.url": "http://a:1"}


def _load(**given: str) -> SinkSettings:
    return load([], GOOD | REGISTRY | {f"value.converter.{key}": text for key, text in given.items()}, {})


def test_a_registry_lets_in_who_has_a_token() -> None:
    """Names are Confluent's; what its cloud alone needs may be left out; no representation shows a secret."""
    static = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "s3cret"}
    made = _load(**static).events.value_registry
    assert isinstance(made, RegistrySettings) and "s3cret" not in repr(made)
    assert dict(made.client) == {"url": "http://a:1", "bearer.auth.logical.cluster": "", **static}
    asked = {
        "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.issuer.endpoint.url": "https://idp/token",
        "bearer.auth.client.id": "me",
        "bearer.auth.client.secret": "s3cret",
        "bearer.auth.scope": "sr",
        "bearer.auth.logical.cluster": "lsrc-1",
        "bearer.auth.identity.pool.id": "pool-1",
    }
    made = _load(**asked).events.value_registry
    assert isinstance(made, RegistrySettings) and dict(made.client) == {"url": "http://a:1", **asked}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, r"auth\.token: is missing, and STATIC_TOKEN needs it"),
        (
            {"bearer.auth.credentials.source": "OAUTHBEARER", "bearer.auth.client.id": "me"},
            r"client\.secret: is missing(.|\n)*issuer\.endpoint\.url: is missing",
        ),
        ({"bearer.auth.credentials.source": "CUSTOM"}, "STATIC_TOKEN"),
        (
            {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": "s3cret",
                "basic.auth.credentials.source": "USER_INFO",
                "basic.auth.user.info": "u:p",
            },
            "keep one of them",
        ),
    ],
)
def test_a_login_by_a_token_is_whole_and_the_only_one(given: dict[str, str], told: str) -> None:
    """What it needs is told at the start, and that there are two logins."""
    with pytest.raises(ConfigError, match=told) as error:
        _load(**given)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize("source", [None, "OAUTHBEARER"])
def test_a_token_without_its_source_is_noted(source: str | None) -> None:
    """As in Confluent's own client it has no effect, which nobody wants."""
    asked = {
        "issuer.endpoint.url": "https://idp/token",
        "client.id": "me",
        "client.secret": "s",
        "credentials.source": "",
    }
    given = {} if source is None else {**asked, "credentials.source": source}
    (note,) = _load(**{f"bearer.auth.{name}": text for name, text in {"token": "s3cret", **given}.items()}).notes
    assert note.endswith(
        "bearer.auth.token: has no effect without another value.converter.bearer.auth.credentials.source"
    )
