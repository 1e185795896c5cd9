"""Java client settings -> librdkafka settings: names and meanings, scope by scope.

Sources: Kafka's client configuration reference and librdkafka's CONFIGURATION.md. Settings that only the Java client
has stay out of the translation: they still reach the Java clients, which look up the sink's offsets and publish the
source's records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from connector.settings.configdef.reader import ConfigReader, PropertyProblem
from connector.settings.kafka import security
from connector.settings.kafka.client_numbers import find_wrong_numbers

_SAME_NAMES = frozenset(
    {
        "bootstrap.servers",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
    }
)
_SAME_NAMES_IN = {
    # What concerns members of a group, and how much a fetch waits for, would only stand in the way of those who read
    # ranges and commit from outside of the group.
    "consumer": frozenset({"check.crcs", "isolation.level", "max.partition.fetch.bytes"}),
    "producer": frozenset(
        {
            "acks",
            "batch.size",
            "compression.type",
            "delivery.timeout.ms",
            "enable.idempotence",
            "linger.ms",
            "max.in.flight.requests.per.connection",
            "request.timeout.ms",
            "retries",
            "transaction.timeout.ms",
        }
    ),
    "admin": frozenset[str](),
}
_RENAMED = {
    "sasl.mechanism": "sasl.mechanisms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
_RENAMED_IN = {
    "consumer": {"request.timeout.ms": "socket.timeout.ms", "fetch.max.wait.ms": "fetch.wait.max.ms"},
    "producer": {"max.request.size": "message.max.bytes"},
    "admin": {"request.timeout.ms": "socket.timeout.ms"},
}
_HEEDED_IN = {"admin": frozenset({"default.api.timeout.ms"})}
"""What librdkafka has no setting for, and whoever asks by it heeds."""

_LETTER_CASES = {
    **dict.fromkeys(("security.protocol", "sasl.mechanism", "ssl.truststore.type", "ssl.keystore.type"), str.upper),
    **dict.fromkeys(("acks", "auto.offset.reset", "client.dns.lookup", "compression.type"), str.lower),
    **dict.fromkeys(("isolation.level", "ssl.endpoint.identification.algorithm"), str.lower),
}
_READING = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "fetch.max.wait.ms",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
        "receive.buffer.bytes",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "sasl.mechanism",
        "security.protocol",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.ms",
    }
)
"""What tasks that read records heed, beside the settings of security."""

_NATIVE_NAMES = {
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "message.max.bytes": "max.request.size",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.password": "sasl.jaas.config",
    "sasl.username": "sasl.jaas.config",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location, with ssl.truststore.type=PEM",
    "ssl.ca.pem": "ssl.truststore.certificates, with ssl.truststore.type=PEM",
    "ssl.certificate.location": "ssl.keystore.location, with ssl.keystore.type=PEM",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain, with ssl.keystore.type=PEM",
    "ssl.key.location": "ssl.keystore.location, with ssl.keystore.type=PEM",
    "ssl.key.pem": "ssl.keystore.key, with ssl.keystore.type=PEM",
}
"""librdkafka's own names, as files of its clients have them -> Java's, which are read here."""

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
_RESERVED = frozenset({"key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"})


@attrs.frozen
class Translation:
    """librdkafka's settings, what could not be translated, and keys that only the Java client knows."""

    native: dict[str, str] = attrs.field(repr=False)
    problems: tuple[PropertyProblem, ...]
    java_only: frozenset[str]


def normalize_case(java: Mapping[str, str]) -> dict[str, str]:
    """The settings with their words in the case that every client reads; Java's own takes some in any."""
    return {key: _LETTER_CASES[key](text) if key in _LETTER_CASES else text for key, text in java.items()}


def translate(java: Mapping[str, str], scope: str) -> Translation:
    """Translate one client's settings; values are never part of a problem."""
    native = {key: text for key, text in java.items() if key in _SAME_NAMES | _SAME_NAMES_IN[scope]}
    renamed = _RENAMED | _RENAMED_IN[scope]
    native |= {renamed[key]: text for key, text in java.items() if key in renamed}
    secured, problems = security.translate(java)
    known = _SAME_NAMES | _SAME_NAMES_IN[scope] | renamed.keys() | security.SECURITY_KEYS | _HEEDED_IN.get(scope, set())
    problems += _find_invalid(java)
    return Translation(native | secured, tuple(problems), frozenset(java.keys() - known - _NATIVE_NAMES.keys()))


def _find_invalid(java: Mapping[str, str]) -> list[PropertyProblem]:
    """Name numbers that are none, or no client takes, and an unknown isolation level: tasks would stumble over them."""
    problems = find_wrong_numbers(java)
    if java.get("isolation.level", ISOLATION_LEVELS[0]).lower() not in ISOLATION_LEVELS:
        todo = f"write {' or '.join(ISOLATION_LEVELS)}"
        problems.append(PropertyProblem("isolation.level", "is not known", todo))
    return problems


def check(reader: ConfigReader, scopes: Mapping[str, Mapping[str, str]]) -> None:
    """Keep a fault for every setting that no client can be made from, and note those without effect."""
    for scope, java in scopes.items():
        translation = translate(java, scope)
        ours = [
            PropertyProblem(key, "is set by the sink itself", "remove it") for key in sorted(_RESERVED & java.keys())
        ]
        for problem in (*translation.problems, *ours):
            refuse_setting(reader, scope, problem)
        if scope != "consumer" and translation.java_only:
            keys = ", ".join(sorted(translation.java_only))
            reader.notes.append(f"these keys of a Java client have no effect on the {scope} client: {keys}")
    unread = scopes.get("consumer", {}).keys() - _READING - security.SECURITY_KEYS - _RESERVED - _NATIVE_NAMES.keys()
    if unread:
        keys = ", ".join(sorted(unread))
        reader.notes.append(f"these consumer settings have no effect on the tasks that read records: {keys}")
    reader.notes.extend(dict.fromkeys(note for java in scopes.values() for note in _note_idle_security(java)))


def _note_idle_security(java: Mapping[str, str]) -> Iterator[str]:
    """Name what was meant to secure a client, and does not: by librdkafka's names, or beside another protocol."""
    yield from (
        f"{key} is librdkafka's name and has no effect: write {_NATIVE_NAMES[key]}"
        for key in sorted(java.keys() & _NATIVE_NAMES.keys())
    )
    protocol = java.get("security.protocol", security.PROTOCOLS[0])
    for family, uses in (("sasl.", protocol.startswith("SASL_")), ("ssl.", protocol.endswith("SSL"))):
        idle = sorted(key for key in java if key.startswith(family) and key not in _NATIVE_NAMES)
        if idle and not uses:
            yield f"these keys have no effect with security.protocol={protocol}: {', '.join(idle)}"


def refuse_setting(reader: ConfigReader, scope: str, problem: PropertyProblem) -> None:
    """Keep a problem as a fault about the entry that it is of, whichever name of it was given."""
    names = [f"{scope}.override.{problem.key}", f"{scope}.{problem.key}", problem.key]
    entry = next((reader.entries[name] for name in names if name in reader.entries), None)
    if entry:
        reader.add_fault(entry, problem.what, problem.todo)
    else:
        reader.add_missing(problem.key, problem.what, problem.todo)
