"""`producer.override.*` of a source -> what Java's producer would refuse in a task, and what has no effect on it.

Source: Kafka's producer configuration reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from connector.settings.configdef.reader import ConfigReader, PropertyProblem
from connector.settings.kafka.client_overrides import refuse_setting, translate

PRODUCER_DEFAULTS: Mapping[str, str] = {
    "acks": "all",
    "enable.idempotence": "true",
    # Measured (2 cores, envelopes of about 600 bytes): 67,000 to 112,000 records/s with the client's own defaults,
    # 140,000 to 180,000 with these sizes, 280,000 to 390,000 with lz4 too; zstd is slower, and smaller.
    "batch.size": "262144",
    "linger.ms": "50",
    "buffer.memory": "67108864",
    "compression.type": "lz4",
}
"""The settings of the producer unless `producer.override.` says otherwise."""

_FIXED = frozenset({"acks", "enable.idempotence", "key.serializer", "transactional.id", "value.serializer"})
_IDEMPOTENT = {"max.in.flight.requests.per.connection": (1, 5), "retries": (1, 2**31 - 1)}
"""With other numbers Java's producer refuses to be idempotent."""

_ALL_ACKS = frozenset({"all", "-1"})
_BOOLEANS = ("true", "false")
_WORDS: Mapping[str, tuple[str, ...]] = {
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "enable.metrics.push": _BOOLEANS,
    "partitioner.adaptive.partitioning.enable": _BOOLEANS,
    "partitioner.ignore.keys": _BOOLEANS,
}
_DELIVERY, _LINGER, _REQUEST = "delivery.timeout.ms", "linger.ms", "request.timeout.ms"
_DEFAULT_REQUEST_MS = 30_000
_MOST_MS = 2**31 - 1
_NUMBER = re.compile(r"[+-]?[0-9]+")


def check_producer(reader: ConfigReader, java: Mapping[str, str]) -> None:
    """Keep a fault for everything that Java's producer would refuse, and note what has no effect."""
    problems = [*translate(java, "producer").problems, *_find_wrong_words(java)]
    if not {problem.key for problem in problems} & {_DELIVERY, _LINGER, _REQUEST}:
        problems += _find_short_delivery(java)
    for problem in problems:
        refuse_setting(reader, "producer", problem)
    if unused := ", ".join(sorted(key for key, text in java.items() if _is_unused(key, text))):
        reader.notes.append(
            f"these producer settings have no effect, as what is acknowledged has to be there, once: {unused}"
        )


def drop_unused(java: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the producer gets: those that make events less safe are left out."""
    return {key: text for key, text in java.items() if key not in _FIXED and not _is_unused(key, text)}


def _is_unused(key: str, text: str) -> bool:
    if key in _IDEMPOTENT:
        least, most = _IDEMPOTENT[key]
        return _NUMBER.fullmatch(text) is not None and not least <= int(text) <= most
    if key == "acks":
        return text not in _ALL_ACKS
    return text.lower() != "true" if key == "enable.idempotence" else key in _FIXED


def _find_wrong_words(java: Mapping[str, str]) -> list[PropertyProblem]:
    return [
        PropertyProblem(key, "is not known", f"write {' or '.join(words)}")
        for key, words in _WORDS.items()
        if key in java and java[key].lower() not in words
    ]


def _find_short_delivery(java: Mapping[str, str]) -> list[PropertyProblem]:
    """Name a time in which no record can be delivered: Java takes none below what one try may take."""
    if _DELIVERY not in java:
        return []
    linger_ms = min(int(java.get(_LINGER, PRODUCER_DEFAULTS[_LINGER])), _MOST_MS)
    least_ms = min(linger_ms + int(java.get(_REQUEST, _DEFAULT_REQUEST_MS)), _MOST_MS)
    if int(java[_DELIVERY]) >= least_ms:
        return []
    what = f"is less than {_LINGER} and {_REQUEST} together, which are {least_ms}"
    return [PropertyProblem(_DELIVERY, what, f"write {least_ms} or more, or lower those")]
