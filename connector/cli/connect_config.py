"""Debezium Server file -> Kafka Connect's JSON for its source, and notes on what changes (`icebridge connect-config`).

The events that Debezium Server handed to its own sink then come through Kafka, where our sink reads them.
Names: Debezium Server's reference ("Source", "Format and Transformation configuration") and Kafka Connect's
`POST /connectors`. Texts are passed on as written: a `${...}` is for the worker to resolve, and no secret is read. A
variable of the environment (`${NAME}`) has Kafka Connect's form there (`${env:NAME}`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from connector.errors import ConfigError
from connector.settings.configdef.property_files import merge_files

_SOURCE, _SMTS = "debezium.source.", ("transforms", "predicates")
_OF_SERVER_ONLY = ("offset.storage", "offset.flush.", "offset.commit.policy", "signal.enabled.engine")
_HISTORY = "schema.history.internal"
_KAFKA_HISTORY = "io.debezium.storage.kafka.history.KafkaSchemaHistory"
_STORES = ("file", "iceberg", "jdbc", "redis", "s3", "azure", "rocketmq", "configmap", "nats")
_WITH_HISTORY = ("mysql", "mariadb", "sqlserver", "oracle", "db2")
_UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
_DEFAULTS = {
    "tasks.max": "1",
    # Debezium Server had no topics. Without these only a broker that creates them by itself gets any (KIP-158).
    "topic.creation.default.partitions": "-1",
    "topic.creation.default.replication.factor": "-1",
}
"""-1 is the broker's own number."""
_JSON = "org.apache.kafka.connect.json.JsonConverter"
_CONVERTERS = {
    "json": _JSON,
    "jsonbytearray": _JSON,
    # What Debezium Server hands to its Iceberg sink unwritten; with its schema JSON keeps all of it.
    "connect": _JSON,
    "avro": "io.confluent.connect.avro.AvroConverter",
    "protobuf": "io.confluent.connect.protobuf.ProtobufConverter",
    "cloudevents": "io.debezium.converters.CloudEventsConverter",
    "simplestring": "org.apache.kafka.connect.storage.StringConverter",
    "string": "org.apache.kafka.connect.storage.StringConverter",
    "binary": "io.debezium.converters.BinaryDataConverter",
}
_APICURIO_URL, _APICURIO = "apicurio.registry.url", "io.apicurio.registry.utils.converter."
_OF_APICURIO = {
    "avro": f"{_APICURIO}AvroConverter",
    "json": f"{_APICURIO}ExtJsonConverter",
    "jsonbytearray": f"{_APICURIO}ExtJsonConverter",
}
"""What Debezium Server takes where the registry is Apicurio's by its own API."""


_VARIABLE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)(:(?:[^{}]|\{[^{}]*\})*)?\}")
_LITERAL = ".replacement"
"""What transforms put in place of a match has `${NAME}` for a group."""


@attrs.frozen
class ConnectorConfig:
    """What `POST /connectors` takes, and one note for each thing that does not stay as it was."""

    name: str
    config: Mapping[str, str]
    notes: Sequence[str]


def convert_files(files: Sequence[Path], overrides: Mapping[str, str]) -> ConnectorConfig:
    """Read Debezium Server's files and return the connector that does the same in Kafka Connect.

    Raises:
        ConfigError: with every fault of the files; or they have no source, or a format that Connect has no class for.
    """
    merged = merge_files(files, overrides)
    if merged.faults:
        raise ConfigError(*(fault.text for fault in sorted(merged.faults)))
    return convert_properties({key: entry.text for key, entry in merged.entries.items()})


def convert_properties(given: Mapping[str, str]) -> ConnectorConfig:
    """Do so for properties that are read already."""
    if not given.get(f"{_SOURCE}connector.class"):
        raise ConfigError(
            f"{_SOURCE}connector.class: is not given; give the file of a Debezium Server, whose source's keys begin "
            f"with {_SOURCE}"
        )
    source = {key.removeprefix(_SOURCE): text for key, text in given.items() if key.startswith(_SOURCE)}
    left_out = sorted(key for key in source if key.startswith(_OF_SERVER_ONLY))
    config = {key: text for key, text in source.items() if key not in left_out}
    notes = [f"{key}: is the worker's in Kafka Connect, left out" for key in left_out]
    name = config.pop("name", "") or given.get("name", "") or config.get("topic.prefix", "") or "debezium"
    notes += _move_history(config, name, given.get("bootstrap.servers", ""))
    notes += [
        f"{key}: is in clear text; a config provider of the worker keeps it out of Connect's answers"
        for key, text in config.items()
        if key.endswith(("password", "secret", "token")) and "${" not in text
    ]
    config |= _converters(given)
    config |= {key.removeprefix("debezium."): text for key, text in given.items() if _is_transform(key)}
    notes += _refer_to_variables(config)
    return ConnectorConfig(name, dict(sorted({**_DEFAULTS, **_nulls_kept(config), **config}.items())), notes)


def _refer_to_variables(config: dict[str, str]) -> list[str]:
    """Write variables as Kafka Connect looks them up: it takes Debezium Server's form for the value itself."""
    notes = []
    for key, text in config.items():
        variables = [] if key.endswith(_LITERAL) else list(_VARIABLE.finditer(text))
        if variables:
            config[key] = _VARIABLE.sub(r"${env:\1}", text)
        notes += [
            f"{key}: Kafka Connect has no default for {name}, set it in the worker's environment"
            for name in dict.fromkeys(each[1] for each in variables if each[2])
        ]
    if any("${env:" in text for text in config.values()):
        provider = "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider"
        notes.append(f"${{env:...}}: the worker looks it up with config.providers=env and {provider}")
    return notes


def _nulls_kept(config: Mapping[str, str]) -> dict[str, str]:
    """What makes converters and transforms tell a null as such, not as its column's default."""
    json = {key for key, text in config.items() if key.endswith(".converter") and text == _JSON}
    unwrap = {key.removesuffix(".type") for key, text in config.items() if key.endswith(".type") and text == _UNWRAP}
    return {f"{part}.replace.null.with.default": "false" for part in (*json, *unwrap)}


def _is_transform(key: str) -> bool:
    head, _, rest = key.partition("debezium.")
    return not head and rest.partition(".")[0] in _SMTS


def _move_history(config: dict[str, str], name: str, bootstrap_servers: str) -> list[str]:
    """Keep the schema history in Kafka where Debezium Server kept it in a file or a table of its own."""
    kept = config.get(_HISTORY, _KAFKA_HISTORY)
    if kept.endswith(".KafkaSchemaHistory") and f"{_HISTORY}.kafka.topic" in config:
        return []
    gone = sorted(key for key in config if key == _HISTORY or _is_storage(key, kept))
    for key in gone:
        del config[key]
    if config["connector.class"].removeprefix("io.debezium.connector.").partition(".")[0] not in _WITH_HISTORY:
        return [f"{key}: this connector keeps no history of schemas, left out" for key in gone]
    topic = f"schema-history.{config.get('topic.prefix', name)}"
    config[f"{_HISTORY}.kafka.topic"] = topic
    config[f"{_HISTORY}.kafka.bootstrap.servers"] = bootstrap_servers or "<bootstrap.servers>"
    note = f"{_HISTORY}: {kept} becomes the topic {topic}, which snapshot.mode=recovery fills"
    return [note if bootstrap_servers else f"{note}; write the brokers' addresses in place of <bootstrap.servers>"]


def _is_storage(key: str, kept: str) -> bool:
    """Tell what a history's store reads, such as `schema.history.internal.iceberg.table-name`, from Debezium's own."""
    head, _, storage = key.partition(f"{_HISTORY}.")
    return not head and storage.partition(".")[0] in _STORES and f".{storage.partition('.')[0]}." in kept.lower()


def _converters(given: Mapping[str, str]) -> dict[str, str]:
    """Return `key.converter`, `value.converter` and their properties; what is set for all sides goes to each."""
    result: dict[str, str] = {}
    for side in ("key", "value"):
        short = given.get(f"debezium.format.{side}", "json").lower()
        if short not in _CONVERTERS:
            known = ", ".join(_CONVERTERS)
            raise ConfigError(f"debezium.format.{side}: {short} has no converter in Kafka Connect; use one of {known}")
        own = _format_settings(given, side)
        by_apicurio = _OF_APICURIO.get(short) if _APICURIO_URL in own else None
        result[f"{side}.converter"] = own.pop("class", by_apicurio or _CONVERTERS[short])
        if result[f"{side}.converter"] == _JSON:
            result[f"{side}.converter.schemas.enable"] = "true"
        result |= {f"{side}.converter.{key}": text for key, text in own.items()}
    return result


def _format_settings(given: Mapping[str, str], side: str) -> dict[str, str]:
    """What is set for a side's converter, over what is set for those of all sides."""
    own: dict[str, str] = {}
    for head in ("debezium.format.", f"debezium.format.{side}."):
        named = {key.removeprefix(head): text for key, text in given.items() if key.startswith(head)}
        own |= {key: text for key, text in named.items() if key.partition(".")[0] not in ("key", "value", "header")}
    return own
