"""what sinks and sources declare alike -> its options: the name, Spark's settings, keys of other programs."""

from __future__ import annotations

import attrs

from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.unknown_keys import ForeignKeys
from connector.settings.configdef.value_types import TOPIC_NAME

NAME = Option(
    name="name",
    kind=TOPIC_NAME,
    default="icebridge",
    importance="high",
    doc="Name of this sink, stored in every commit: do not change it. Two sinks on the same tables need two names.",
)
SPARK_PREFIX = Prefix(
    name="spark.",
    target="Spark",
    importance="low",
    doc="Any Spark setting, passed on unchanged.",
)
DEBEZIUM = ForeignKeys(
    "these keys configure Debezium itself and have no effect here",
    frozenset({"debezium.transforms", "debezium.predicates", "transforms", "predicates"}),
    (
        "debezium.source.",
        "debezium.format.",
        "debezium.transforms.",
        "debezium.predicates.",
        "debezium.engine.",
        "debezium.api.",
        "transforms.",
        "predicates.",
        "quarkus.",
        "database.",
        "schema.history.",
        "offset.",
        "%",
    ),
    # Iceberg's DebeziumTransform names tables by it.
    read=(".cdc.target.pattern",),
)
CONNECT = ForeignKeys(
    "these keys configure a Kafka Connect worker and have no effect here",
    frozenset(
        {
            "tasks.max",
            "tasks.max.enforce",
            "header.converter",
            "config.action.reload",
            "config.providers",
            "plugin.path",
            "errors.log.enable",
            "errors.log.include.messages",
            "errors.deadletterqueue.context.headers.enable",
        }
    ),
    ("config.providers.",),
)
DEBEZIUM_SERVER_SINK = ForeignKeys(
    "these keys of Debezium Server's iceberg sink have no effect here",
    frozenset(
        {
            "debezium.sink.iceberg.upsert-use-dv",
            "debezium.sink.batch.concurrent-uploads",
            "debezium.sink.batch.concurrent-uploads.timeout-minutes",
        }
    ),
    ("debezium.sink.iceberg.openlineage.", "debezium.sink.batch.metrics."),
)
_OF_CONVERTERS = (
    "allow.optional.map.keys",
    "auto.register.schemas",
    "connect.meta.data",
    "decimal.format",
    "discard.type.doc.default",
    "enhanced.avro.schema.support",
    "enhanced.protobuf.schema.support",
    "generalized.sum.type.support",
    "http.connect.timeout.ms",
    "http.read.timeout.ms",
    "id.compatibility.strict",
    "ignore.default.for.nullables",
    "json.fail.invalid.schema",
    "json.indent.output",
    "json.write.dates.iso8601",
    "key.schema.id.deserializer",
    "key.schema.id.serializer",
    "key.subject.name.strategy",
    "latest.cache.size",
    "latest.cache.ttl.sec",
    "latest.compatibility.strict",
    "max.retries",
    "max.schemas.per.subject",
    "missing.id.cache.ttl.sec",
    "missing.schema.cache.ttl.sec",
    "normalize.schemas",
    "optional.for.nullables",
    "propagate.schema.tags",
    "replace.null.with.default",
    "retries.max.wait.ms",
    "retries.wait.ms",
    "schema.registry.request.timeout.ms",
    "schemas.cache.config",
    "schemas.cache.size",
    "scrub.full.names",
    "scrub.invalid.names",
    "specific.avro.reader",
    "use.latest.version",
    "use.latest.with.metadata",
    "use.schema.id",
    "value.schema.id.deserializer",
    "value.schema.id.serializer",
    "value.subject.name.strategy",
    "wrapper.for.nullables",
    "wrapper.for.raw.primitives",
)
"""Kafka Connect's, and Confluent's."""
_OF_APICURIO = (
    "artifact-resolver-strategy",
    "artifact.artifact-id",
    "artifact.group-id",
    "artifact.version",
    "auto-register",
    "auto-register.if-exists",
    "avro-datum-provider",
    "check-period-ms",
    "converter.deserializer",
    "converter.serializer",
    "dereference-schema",
    "explicit-artifact-group-id",
    "explicit-artifact-id",
    "explicit-artifact-version",
    "find-latest",
    "retry-backoff-ms",
    "retry-count",
    "schema-resolver",
    "serdes.validation-enabled",
)
_OF_GLUE = (
    "avroRecordType",
    "cacheSize",
    "compatibility",
    "compression",
    "dataFormat",
    "description",
    "jsonObjectType",
    "metadata",
    "protobufMessageType",
    "registry.name",
    "schemaAutoRegistrationEnabled",
    "schemaName",
    "schemaNameGenerationClass",
    "tags",
    "timeToLiveMillis",
    "userAgentApp",
)
CONVERTERS = ForeignKeys(
    "these keys of Kafka Connect's converters say how messages are written and have no effect on reading them",
    frozenset(
        f"{side}.converter.{key}"
        for side in ("key", "value")
        for key in (*_OF_CONVERTERS, *(f"apicurio.registry.{one}" for one in _OF_APICURIO), *_OF_GLUE)
    ),
)
"""A sink's: a source's converters do write."""
FOREIGN_KEYS = (DEBEZIUM, CONNECT, DEBEZIUM_SERVER_SINK)
SOURCE_KEYS = frozenset(
    {
        "table.include.list",
        "table.exclude.list",
        "column.include.list",
        "column.exclude.list",
        "message.key.columns",
        "snapshot.mode",
        "poll.interval.ms",
        "max.batch.size",
        "iceberg.branch",
        "iceberg.skip.own.commits",
        "offset.storage.iceberg.table-name",
    }
)
"""Options that say what a source captures: a sink's file that has one was likely meant for a source."""


@attrs.frozen
class OptionScope:
    """A chapter of the reference."""

    title: str
    options: tuple[Option[object], ...]
    prefixes: tuple[Prefix, ...] = ()
