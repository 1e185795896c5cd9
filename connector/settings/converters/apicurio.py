"""properties -> ApicurioSettings: what Apicurio's own converters were told, by which their messages are read.

Names and defaults: Apicurio Registry 2.6 and 3, "Kafka client serializers/deserializers". Converters of version 2 write
global ids of eight bytes unless they are told otherwise, those of version 3 content ids of four; the API that their URL
names tells the version.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeVar

import attrs

from connector.settings.configdef.option import Importance, Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, TEXT, InvalidValue, ValueType, one_of
from connector.settings.converters.schema_registry import HTTP_URL, name_within_cloud_events

T = TypeVar("T")
IdKind = Literal["globalId", "contentId"]
_API = "/apis/registry/v2"
_THIRD_API = "/apis/registry/v3"
_CONFLUENT_BYTES, _OWN_BYTES = 4, 8


def _parse_url(text: str) -> str:
    url = text.strip().rstrip("/")
    if not HTTP_URL.fullmatch(url):
        raise InvalidValue("{} is no URL", "write http://host:port/apis/registry/v2")
    return url if "/apis/" in url else url + _API


def _parse_endpoint(text: str) -> str:
    if not HTTP_URL.fullmatch(text):
        raise InvalidValue(
            "{} is no URL", "write the whole URL, as https://host/realms/NAME/protocol/openid-connect/token"
        )
    return text


@attrs.frozen
class ApicurioOptions:
    """The options of one side, key or value."""

    url: Option[str | None]
    use_id: Option[str]
    confluent: Option[bool]
    handler: Option[str | None]
    headers: Option[bool]
    user: Option[str | None]
    password: Option[str | None]
    endpoint: Option[str | None]
    client: Option[str | None]
    secret: Option[str | None]
    scope: Option[str | None]

    @property
    def all(self) -> tuple[Option[object], ...]:
        """Every option, in the order documents show them."""
        ids = (self.use_id, self.confluent, self.handler, self.headers)
        return (self.url, *ids, self.user, self.password, *self.of_tokens, self.scope)

    @property
    def of_tokens(self) -> tuple[Option[str | None], ...]:
        """Those that a token takes, all of them."""
        return (self.endpoint, self.client, self.secret)


def declare_options(side: str) -> ApicurioOptions:
    """Declare the options of a side."""
    declare = partial(_declare, side)
    return ApicurioOptions(
        url=declare(
            "registry.url",
            ValueType("string", _parse_url),
            None,
            f"With Apicurio's AvroConverter: URL of the registry's own API for the {side}s.",
            importance="medium",
        ),
        use_id=declare(
            "registry.use-id",
            one_of("globalId", "contentId"),
            "globalId",
            f"Which id the {side}s have; with a URL of Apicurio 3 ({_THIRD_API}) contentId by default.",
            shown="<globalId; contentId with Apicurio 3>",
        ),
        confluent=declare(
            "registry.as-confluent",
            BOOLEAN,
            False,
            f"Whether ids of {side}s have four bytes, as Confluent's, and not eight.",
        ),
        handler=declare(
            "registry.id-handler",
            TEXT,
            None,
            f"Class that wrote ids of {side}s: four bytes if Confluent or 4Byte is in its name; not given: by version.",
        ),
        headers=declare(
            "registry.headers.enabled",
            BOOLEAN,
            False,
            f"Whether the ids of {side}s are in the records' headers (apicurio.{side}.globalId).",
        ),
        user=declare(
            "auth.username", TEXT, None, f"User for the registry of the {side}s.", also="registry.auth.username"
        ),
        password=declare(
            "auth.password",
            TEXT,
            None,
            f"Password for the registry of the {side}s.",
            secret=True,
            also="registry.auth.password",
        ),
        endpoint=declare(
            "auth.service.token.endpoint",
            ValueType("string", _parse_endpoint),
            None,
            f"URL at which a token for the registry of the {side}s is asked for (OpenID Connect).",
            also="registry.auth.service.token.endpoint",
        ),
        client=declare(
            "auth.client.id",
            TEXT,
            None,
            f"Who asks for a token for the registry of the {side}s.",
            also="registry.auth.client.id",
        ),
        secret=declare(
            "auth.client.secret",
            TEXT,
            None,
            "And with what secret.",
            secret=True,
            also="registry.auth.client.secret",
        ),
        scope=declare(
            "auth.client.scope",
            TEXT,
            None,
            "What the token is to be good for.",
            also="registry.auth.client.scope",
        ),
    )


def _declare(
    side: str,
    name: str,
    kind: ValueType[T],
    default: T,
    doc: str,
    *,
    importance: Importance = "low",
    secret: bool = False,
    shown: str | None = None,
    also: str | None = None,
) -> Option[T]:
    """Declare an option of a side; `also` is another name. Debezium's CloudEventsConverter has the same ones."""
    within = name_within_cloud_events(side)
    others = () if also is None else (f"{side}.converter.apicurio.{also}", *within(f"apicurio.{also}"))
    return Option(
        name=f"{side}.converter.apicurio.{name}",
        kind=kind,
        default=default,
        importance=importance,
        doc=doc,
        shown=shown,
        secret=secret,
        aliases=(*within(f"apicurio.{name}"), *others),
    )


@attrs.frozen
class ApicurioSettings:
    """Where the registry is, and how messages tell their schema: which id, its bytes in front, or a header's name.

    It lets in a user, or who has a token that `token_endpoint` gives a client.
    """

    url: str
    use_id: IdKind
    id_bytes: int
    header: str | None
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    token_endpoint: str | None = None
    client_id: str = ""
    client_secret: str = attrs.field(default="", repr=False)
    scope: str = ""


def build(reader: ConfigReader, side: str, options: ApicurioOptions, *, wanted: bool) -> ApicurioSettings | None:
    """Read a side's registry; faults go to the reader. None where its converter is another's."""
    url, handler, confluent = reader.get(options.url), reader.get(options.handler), reader.get(options.confluent)
    is_third = url is not None and _THIRD_API in url
    use_id: IdKind = "contentId" if reader.get(options.use_id) == "contentId" else "globalId"
    if is_third and reader.entry(options.use_id) is None:
        use_id = "contentId"
    short = confluent or (is_third if handler is None else "Confluent" in handler or "4Byte" in handler)
    headers, user, password = reader.get(options.headers), reader.get(options.user), reader.get(options.password)
    token = _read_token(reader, options)
    if not wanted:
        return None
    if url is None:
        if reader.entry(options.url) is None:
            todo = "add the URL of the registry's own API (http://host:port/apis/registry/v2)"
            reader.add_missing(options.url.name, "is missing, and Apicurio's AvroConverter needs it", todo)
        return None
    header = f"apicurio.{side}.{use_id}" if headers else None
    size = _CONFLUENT_BYTES if short and not headers else _OWN_BYTES
    return ApicurioSettings(url, use_id, size, header, user, password, *token)


def _read_token(reader: ConfigReader, options: ApicurioOptions) -> tuple[str | None, str, str, str]:
    """Read how a token is asked for; half of it, or a user beside it, is a fault."""
    endpoint, client, secret = map(reader.get, options.of_tokens)
    given = [entry for option in (*options.of_tokens, options.scope) if (entry := reader.entry(option))]
    missing = [option.name for option in options.of_tokens if reader.entry(option) is None]
    user = reader.entry(options.user)
    if given and missing:
        reader.add_fault(given[0], f"{' and '.join(missing)} is missing", "a token takes all of them")
    if given and user:
        reader.add_fault(user, f"{given[0].key} is given too", "keep one of them")
    return endpoint, client or "", secret or "", reader.get(options.scope) or ""
