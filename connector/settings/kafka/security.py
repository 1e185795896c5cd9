"""Java security settings -> librdkafka's: SASL logins, PEM stores; JKS and PKCS12 stores by our own names.

Those are read when a client is made (`settings.kafka.stores`), on the driver, which hands them on as PEM.

Sources: Kafka's security documentation ("SSL", "SASL", KIP-651 for PEM) and librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connector.settings.configdef.reader import PropertyProblem
from connector.settings.kafka import jaas
from connector.settings.kafka import stores as key_stores

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGINS = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_OAUTH_MODULE, _MSK_MODULE, _KERBEROS_MODULE = "OAuthBearerLoginModule", "IAMLoginModule", "Krb5LoginModule"
_MECHANISMS = (*_LOGINS, "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
MSK_PROFILE, MSK_ROLE = "icebridge.msk.profile", "icebridge.msk.role"
"""Stand in a translation for a login to Amazon MSK by IAM, by a profile or role; empty for what the machine has."""

_TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105
_EXTENSION = "extension_"
_IDENTITY = ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain")
SECURITY_KEYS = frozenset(
    {
        "sasl.client.callback.handler.class",
        "sasl.jaas.config",
        "sasl.kerberos.service.name",
        "sasl.login.callback.handler.class",
        _TOKEN_ENDPOINT,
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        *_IDENTITY,
    }
)


_STORE_REMEDY = "name a file of type JKS or PKCS12, or PEM"


class _Untranslatable(Exception):
    def __init__(self, key: str, what: str, todo: str) -> None:
        super().__init__(key)
        self.problem = PropertyProblem(key, what, todo)


def translate(java: Mapping[str, str]) -> tuple[dict[str, str], list[PropertyProblem]]:
    """librdkafka's security settings beside the protocol and mechanism, and what could not be translated."""
    native: dict[str, str] = {}
    problems: list[PropertyProblem] = []
    for part in (
        _translate_protocol,
        _translate_login,
        _translate_host_check,
        _translate_truststore,
        _translate_keystore,
    ):
        try:
            native |= part(java)
        except _Untranslatable as wrong:
            problems.append(wrong.problem)
    return native, problems


def _translate_protocol(java: Mapping[str, str]) -> dict[str, str]:
    protocol = java.get("security.protocol", PROTOCOLS[0]).upper()
    if protocol not in PROTOCOLS:
        raise _Untranslatable("security.protocol", "is not known", f"write {' or '.join(PROTOCOLS)}")
    return {"security.protocol": protocol} if "security.protocol" in java else {}


def _translate_login(java: Mapping[str, str]) -> dict[str, str]:
    if not java.get("security.protocol", "").upper().startswith("SASL_"):
        return {}
    mechanism = java.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise _Untranslatable("sasl.mechanism", "names an unknown mechanism", f"use {' or '.join(_MECHANISMS)}")
    if mechanism not in _LOGINS:
        return _OTHER_LOGINS[mechanism](java)
    module = _LOGINS[mechanism]
    if "sasl.jaas.config" not in java:
        raise _Untranslatable("sasl.jaas.config", "is missing", f"add the {module} with username and password")
    login = _parse_login(java["sasl.jaas.config"], module)
    if login.module != module or not {"username", "password"} <= login.options.keys():
        what = f"does not fit {mechanism}"
        raise _Untranslatable("sasl.jaas.config", what, f"use the {module} with username and password")
    return {"sasl.username": login.options["username"], "sasl.password": login.options["password"]}


def _translate_oauth(java: Mapping[str, str]) -> dict[str, str]:
    """Client credentials of an OpenID Connect provider (KIP-768)."""
    login = _require_login(java, _OAUTH_MODULE, "clientId and clientSecret")
    endpoint = java.get(_TOKEN_ENDPOINT, "")
    if not endpoint.startswith(("https://", "http://")):
        raise _Untranslatable(_TOKEN_ENDPOINT, "is no URL of a token endpoint", "name the provider's, as https://...")
    if not {"clientId", "clientSecret"} <= login.options.keys():
        hint = f"use the {_OAUTH_MODULE} with clientId and clientSecret"
        raise _Untranslatable("sasl.jaas.config", "does not fit OAUTHBEARER", hint)
    native = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.oauthbearer.client.id": login.options["clientId"],
        "sasl.oauthbearer.client.secret": login.options["clientSecret"],
    }
    if login.options.get("scope"):
        native["sasl.oauthbearer.scope"] = login.options["scope"]
    more = [f"{k.removeprefix(_EXTENSION)}={v}" for k, v in login.options.items() if k.startswith(_EXTENSION)]
    return native | ({"sasl.oauthbearer.extensions": ",".join(more)} if more else {})


def _translate_msk(java: Mapping[str, str]) -> dict[str, str]:
    """Amazon MSK's IAM: its brokers take the signed token by OAUTHBEARER too, which librdkafka speaks."""
    login = _require_login(java, _MSK_MODULE, "nothing else, or awsProfileName or awsRoleArn")
    role, profile = (login.options.get(name, "") for name in ("awsRoleArn", "awsProfileName"))
    return {"sasl.mechanisms": "OAUTHBEARER", MSK_ROLE: role, MSK_PROFILE: profile}


def _translate_kerberos(java: Mapping[str, str]) -> dict[str, str]:
    login = _require_login(java, _KERBEROS_MODULE, "useKeyTab, keyTab and principal")
    service = java.get("sasl.kerberos.service.name", login.options.get("serviceName", ""))
    given = {
        "sasl.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": service,
        "sasl.kerberos.keytab": login.options.get("keyTab", ""),
        "sasl.kerberos.principal": login.options.get("principal", ""),
    }
    return {name: text for name, text in given.items() if text}


def _require_login(java: Mapping[str, str], module: str, options: str) -> jaas.Login:
    if "sasl.jaas.config" not in java:
        raise _Untranslatable("sasl.jaas.config", "is missing", f"add the {module} with {options}")
    login = _parse_login(java["sasl.jaas.config"], module)
    if login.module != module:
        raise _Untranslatable("sasl.jaas.config", "does not fit the mechanism", f"use the {module} with {options}")
    return login


_OTHER_LOGINS: Mapping[str, Callable[[Mapping[str, str]], dict[str, str]]] = {
    "OAUTHBEARER": _translate_oauth,
    "AWS_MSK_IAM": _translate_msk,
    "GSSAPI": _translate_kerberos,
}


def _parse_login(text: str, module: str) -> jaas.Login:
    try:
        return jaas.parse_login(text)
    except ValueError as wrong:
        hint = f'write <package>.{module} required username="..." password="...";'
        raise _Untranslatable("sasl.jaas.config", str(wrong), hint) from None


def _translate_host_check(java: Mapping[str, str]) -> dict[str, str]:
    key = "ssl.endpoint.identification.algorithm"
    # Java turns the check off by an empty text, librdkafka by a word.
    return {key: java[key].lower() or "none"} if key in java else {}


def _translate_truststore(java: Mapping[str, str]) -> dict[str, str]:
    given = {"ssl.truststore.certificates": "ssl.ca.pem", "ssl.truststore.location": "ssl.ca.location"}
    stores = [key for key in given if key in java]
    kind = java.get("ssl.truststore.type", "JKS").upper()
    if stores and kind != "PEM":
        if kind not in key_stores.KINDS or stores != ["ssl.truststore.location"]:
            raise _Untranslatable(stores[0], f"is no store of type {kind}", _STORE_REMEDY)
        password = java.get("ssl.truststore.password", "")
        return {key_stores.TRUSTSTORE: java[stores[0]], key_stores.TRUSTSTORE_PASSWORD: password}
    return {given[key]: java[key] for key in stores}


def _translate_keystore(java: Mapping[str, str]) -> dict[str, str]:
    stores = [key for key in _IDENTITY if key in java]
    if not stores:
        return {}
    kind = java.get("ssl.keystore.type", "JKS").upper()
    native = {"ssl.key.password": java["ssl.key.password"]} if "ssl.key.password" in java else {}
    in_file = stores == ["ssl.keystore.location"]
    if kind in key_stores.KINDS and in_file:
        names = {
            "ssl.keystore.location": key_stores.KEYSTORE,
            "ssl.keystore.password": key_stores.KEYSTORE_PASSWORD,
        }
        return native | {name: java[key] for key, name in names.items() if key in java}
    if kind != "PEM":
        raise _Untranslatable(stores[0], f"is no store of type {kind}", _STORE_REMEDY)
    if in_file:
        # Java keeps key and certificates in one file; librdkafka reads each from where it is told.
        location = java["ssl.keystore.location"]
        return native | {"ssl.key.location": location, "ssl.certificate.location": location}
    pem = {"ssl.keystore.key": "ssl.key.pem", "ssl.keystore.certificate.chain": "ssl.certificate.pem"}
    return native | {name: java[key] for key, name in pem.items() if key in java}
