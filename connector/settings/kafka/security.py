"""Java security settings -> librdkafka's: SASL logins, PEM and PKCS12 stores.

Sources: Kafka's security documentation ("SSL", "SASL", KIP-651 for PEM) and librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from connector.settings.configdef.reader import PropertyProblem
from connector.settings.kafka import jaas

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGINS = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
}
_UNSUPPORTED = frozenset({"GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"})
_IDENTITY = ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain")
SECURITY_KEYS = frozenset(
    {
        "sasl.jaas.config",
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
    if mechanism not in _LOGINS:
        what = f"{mechanism} is not supported yet" if mechanism in _UNSUPPORTED else "names an unknown mechanism"
        raise _Untranslatable("sasl.mechanism", what, f"use {' or '.join(_LOGINS)}")
    module = _LOGINS[mechanism]
    if "sasl.jaas.config" not in java:
        raise _Untranslatable("sasl.jaas.config", "is missing", f"add the {module} with username and password")
    login = _parse_login(java["sasl.jaas.config"], module)
    if login.module != module or not {"username", "password"} <= login.options.keys():
        what = f"does not fit {mechanism}"
        raise _Untranslatable("sasl.jaas.config", what, f"use the {module} with username and password")
    return {"sasl.username": login.options["username"], "sasl.password": login.options["password"]}


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
    if stores and java.get("ssl.truststore.type", "JKS").upper() != "PEM":
        raise _Untranslatable(stores[0], "is not a PEM store", "convert it to PEM and set ssl.truststore.type=PEM")
    return {given[key]: java[key] for key in stores}


def _translate_keystore(java: Mapping[str, str]) -> dict[str, str]:
    stores = [key for key in _IDENTITY if key in java]
    if not stores:
        return {}
    kind = java.get("ssl.keystore.type", "JKS").upper()
    native = {"ssl.key.password": java["ssl.key.password"]} if "ssl.key.password" in java else {}
    in_file = stores == ["ssl.keystore.location"]
    if kind == "PKCS12" and in_file:
        return native | {key: java[key] for key in ("ssl.keystore.location", "ssl.keystore.password") if key in java}
    if kind != "PEM":
        raise _Untranslatable(stores[0], "is not a PEM store", "convert it to PEM and set ssl.keystore.type=PEM")
    if in_file:
        # Java keeps key and certificates in one file; librdkafka reads each from where it is told.
        location = java["ssl.keystore.location"]
        return native | {"ssl.key.location": location, "ssl.certificate.location": location}
    pem = {"ssl.keystore.key": "ssl.key.pem", "ssl.keystore.certificate.chain": "ssl.certificate.pem"}
    return native | {name: java[key] for key, name in pem.items() if key in java}
