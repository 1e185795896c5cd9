"""keys of Aiven's OpenSearch sink that are no options here -> notes where nothing depends on them, else faults.

Names and defaults: Aiven's opensearch-sink-connector-config-options.
"""

from __future__ import annotations

from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.unknown_keys import ForeignKeys
from connector.settings.opensearch.connection import TRUST_ALL

_SSL = "connection.ssl."
_PEM_OF_CLIENT = f"convert it to PEM, and set {_SSL}certificate.location and {_SSL}key.location"
_ONLY = {
    "compact.map.entries": ("true", "take it out: maps are objects with their keys as names"),
    "routing.type": ("none", "take it out: documents are routed by their ids"),
    "aws.sts.role.external.id": ("", "set aws.profile to a profile that takes the role on with it"),
    f"{_SSL}endpoint.identification.algorithm": ("https", f"take it out, or set {TRUST_ALL.name} for tests"),
    f"{_SSL}truststore.location": ("", f"convert it to PEM, and set {_SSL}ca.location"),
    f"{_SSL}keystore.location": ("", _PEM_OF_CLIENT),
}
"""Key -> the value that it may have here, and what to do about another one."""

FOREIGN_KEYS = (
    ForeignKeys(
        "these keys of Aiven's OpenSearch sink steer its buffers and have no effect here",
        frozenset({"type.name", "max.buffered.records", "linger.ms", "flush.timeout.ms", "connection.timeout.ms"}),
        ("type.name.",),
    ),
    ForeignKeys(
        "an index template that fits a data stream's name is used whatever its own name, so this key has no effect "
        "here",
        frozenset({"data.streams.existing.index.template.name"}),
    ),
    ForeignKeys(
        "these keys of Aiven's OpenSearch sink have no effect here",
        frozenset(
            {
                *_ONLY,
                "aws.sts.role.session.duration",
                "aws.sts.role.session.name",
                "drop.invalid.message",
                "existing.resource.type",
                "routing.type.record.value.path",
                *(f"{_SSL}{key}" for key in ("cipher.suites", "enabled.protocols", "protocol")),
                *(f"{_SSL}{store}.{key}" for store in ("keystore", "truststore") for key in ("password", "type")),
            }
        ),
    ),
)


def check(reader: ConfigReader) -> None:
    """Refuse what would make documents, or a connection, that are not those of this sink."""
    for key, (only, todo) in _ONLY.items():
        entry = reader.entries.get(key)
        if entry and entry.text and entry.text.lower() != only:
            reader.add_fault(entry, f"can only be {only} here" if only else "is not supported", todo)
