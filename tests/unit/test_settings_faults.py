"""wrong settings -> one error with every fault, and notes; never a secret."""

from __future__ import annotations

import difflib
import pickle
from pathlib import Path

import pytest

from connector.errors import ConfigError
from connector.settings import load

GOOD = {"bootstrap.servers": "localhost:9092", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}


def faults_of(changed: dict[str, str]) -> tuple[str, ...]:
    """Faults of a good configuration with these keys over it."""
    with pytest.raises(ConfigError) as caught:
        load([], GOOD | changed, {})
    return caught.value.faults


def fault_of(key: str, text: str) -> str:
    """The only fault of a good configuration with this key over it."""
    (fault,) = faults_of({key: text})
    return fault


def test_all_faults_at_once(tmp_path: Path) -> None:
    """Every fault of all layers is reported in one error, in the order of the layers, with file and line."""
    first = tmp_path / "a.properties"
    second = tmp_path / "b.properties"
    first.write_text("topcs=x\n\ndebezium.sink.iceberg.upsert=yes\nerrors.deadletterqueue.limit.ratio=7\n")
    second.write_text("debezium.sink.type=kinesis\ndebezium.sink.iceberg.write.format.default=csv\n")
    with pytest.raises(ConfigError) as caught:
        load([first, second], {"debezium.sink.batch.max-events": "0", "errors.tolerence": "none"})
    assert caught.value.faults == (
        f"{first}:1: topcs: is not a known key; did you mean topics?",
        f"{first}:3: debezium.sink.iceberg.upsert: 'yes' is not a boolean; write true or false",
        f"{first}:4: errors.deadletterqueue.limit.ratio: '7' is not a ratio; write a number from 0 to 1, such as 0.1",
        f"{second}:1: debezium.sink.type: 'kinesis' is not a sink of this program; "
        "write iceberg, icebergevents or opensearch",
        f"{second}:2: debezium.sink.iceberg.write.format.default: 'csv' is not known; write parquet or avro or orc",
        "-X: debezium.sink.batch.max-events: '0' is outside 1 to 9223372036854775807; write a number in that range",
        "-X: errors.tolerence: is not a known key; did you mean errors.tolerance?",
        f"{second}: bootstrap.servers: is missing; add it as host:port of a Kafka broker",
        f"{second}: debezium.sink.iceberg.warehouse: is missing; add the root of the warehouse, such as a local path",
        f"{second}: topics: is missing; name the topics, or give topics.regex or debezium.source.topic.prefix",
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("topcs", "topics"),
        ("TOPICS", "topics"),
        ("bootstrap_servers", "bootstrap.servers"),
        ("warehouse", "debezium.sink.iceberg.warehouse"),
        ("debezium.sink.icberg.table-prefix", "debezium.sink.iceberg.table-prefix"),
        ("debezium.sink.icberg.s3.endpoint", "debezium.sink.iceberg.s3.endpoint"),
        ("consumr.override.fetch.min.bytes", "consumer.override.fetch.min.bytes"),
        ("sparc.executor.memory", "spark.executor.memory"),
        ("debezium.sink.batch.interval.ms", "debezium.sink.batch.interval-ms"),
        ("delete.enabled", "debezium.sink.iceberg.upsert-keep-deletes=false"),
        ("insert.mode", "debezium.sink.iceberg.upsert"),
        ("schema_evolution", "debezium.sink.iceberg.allow-field-addition"),
        ("s3.access-key-id", "debezium.sink.iceberg.s3.access-key-id"),
        ("catalog.type", "debezium.sink.iceberg.type"),
    ],
)
def test_unknown_key_names_the_nearest(key: str, meant: str) -> None:
    """An unknown key is refused with the name that was probably meant."""
    assert fault_of(key, "x") == f"-X: {key}: is not a known key; did you mean {meant}?"


def test_unknown_key_without_a_near_one() -> None:
    """A key unlike any other is refused with where to look."""
    assert fault_of("zzz", "x") == "-X: zzz: is not a known key; docs/reference/options.md lists all keys"


@pytest.mark.parametrize(
    "key", ["table-prefx", "Upsert", "upsert_keep_deletes", "partitionby", "warehous", "formatversion"]
)
def test_near_miss_under_the_pass_through_prefix(key: str) -> None:
    """A slip in a key that would go on to the catalog is noted by name."""
    (note,) = load([], GOOD | {f"debezium.sink.iceberg.{key}": "x"}, {}).notes
    assert note.startswith(f"-X: debezium.sink.iceberg.{key} is not an option of the sink; did you mean debezium.sink.")


def test_notes_are_told_with_the_faults_too() -> None:
    """What looks like a slip often explains a fault: it comes with the error, through a pickle as well."""
    slip = {"debezium.sink.iceberg.upsertt": "x", "debezium.sink.iceberg.upsert": "perhaps"}
    with pytest.raises(ConfigError) as error:
        load([], GOOD | slip, {})
    (note,) = pickle.loads(pickle.dumps(error.value)).notes
    assert "upsertt is not an option of the sink" in note
    assert error.value.faults != ()


def test_iceberg_properties_are_no_near_misses() -> None:
    """Properties that Iceberg has are handed on without a note."""
    keys = [
        "catalog-impl",
        "clients",
        "client.region",
        "cache-enabled",
        "cache.expiration-interval-ms",
        "credential",
        "token",
        "ref",
        "scope",
        "glue.id",
        "header.X-Iceberg-Access-Delegation",
        "jdbc.user",
        "jdbc.schema-version",
        "jdbc.strict-mode",
        "lock-impl",
        "lock.table",
        "metrics-reporter-impl",
        "oauth2-server-uri",
        "prefix",
        "s3.endpoint",
        "s3.access-key-id",
        "s3.path-style-access",
        "table-default.write.format.default",
        "table-override.format-version",
        "fs.s3a.endpoint",
        "view.default",
        "write.metadata.compression-codec",
        "write.upsert.enabled",
        "write.target-file-size-bytes",
        "write.distribution-mode",
        "commit.retry.num-retries",
        "history.expire.max-snapshot-age-ms",
        "read.split.target-size",
    ]
    rest = {"debezium.sink.iceberg.type": "rest", "debezium.sink.iceberg.uri": "http://h"}
    given = {f"debezium.sink.iceberg.{key}": "x" for key in keys if key != "catalog-impl"}
    settings = load([], GOOD | rest | given, {})
    assert settings.notes == ()
    assert settings.catalog.properties["jdbc.user"] == "x"
    assert settings.catalog.table_properties["write.target-file-size-bytes"] == "x"
    assert not any(key.startswith("write.") for key in settings.catalog.properties)


def test_near_miss_among_debezium_keys() -> None:
    """A slip in a Debezium key that the sink would use is noted beside the one note for Debezium's keys."""
    notes = load([], GOOD | {"debezium.format.value.schema.enable": "true"}, {}).notes
    assert notes == (
        "these keys configure Debezium itself and have no effect here: debezium.format.value.schema.enable",
        "-X: debezium.format.value.schema.enable is not an option of the sink; "
        "did you mean debezium.format.value.schemas.enable?",
    )


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        (
            "bootstrap.servers",
            "localhost",
            "'localhost' is not a list of brokers; write host:port, several separated by commas",
        ),
        (
            "topics",
            "a b",
            "'a b' cannot be (part of) a topic name; use letters, digits, '.', '_' and '-', at most 249 of them",
        ),
        ("topics", ",", "',' holds no topic; name the topics, separated by commas"),
        ("topics.regex", "a(", "topics is given too"),
        ("consumer.override.auto.offset.reset", "none", "'none' is not known; write earliest or latest"),
        ("consumer.override.enable.auto.commit", "true", "is set by the sink itself; remove it"),
        (
            "errors.deadletterqueue.topic.name",
            "t",
            "names the dead letter topic: dead letters would be read again; remove it",
        ),
        (
            "errors.deadletterqueue.topic.replication.factor",
            "0",
            "write -1 for the broker's default or a number from 1",
        ),
        ("debezium.sink.type", "kafka", "'kafka' is not a sink of this program; write iceberg"),
        ("iceberg.tables.auto-create-props.write.format.default", "csv", "'csv' is not written; write parquet or avro"),
        ("iceberg.tables.write-props.write.format.default", "CSV", "'CSV' is not written; write parquet or avro"),
        ("iceberg.tables.write-props.write.orc.compression-codec", "gzip", "'gzip' is not written; write zlib or zstd"),
        ("iceberg.tables.write-props.write.delete.format.default", "avro", "'avro' is not written; write parquet"),
        ("debezium.sink.iceberg.write.delete.format.default", "orc", "'orc' is not written; write parquet"),
        (
            "debezium.sink.iceberg.write.avro.compression-codec",
            "lz4",
            "'lz4' is not written; write gzip or zstd or snap",
        ),
        ("debezium.sink.iceberg.format-version", "1", "'1' is outside 2 to 3; write a number in that range"),
        ("debezium.sink.iceberg.format-version", "two", "'two' is not a whole number; write digits only, from 2"),
        (
            "debezium.sink.iceberg.format-version",
            "3  # with vectors",
            "'3  # with vectors' is not a whole number (a comment needs a line of its own); write digits only, from 2",
        ),
        ("debezium.sink.iceberg.table-namespace", "a..b", "has an empty level; write names separated by single dots"),
        (
            "debezium.sink.iceberg.warehouse",
            "s3://b/w",
            "is not a local path and no catalog is named; add debezium.sink.",
        ),
        (
            "debezium.sink.iceberg.uri",
            "x://user:pw@h",
            "does not name the type of catalog; add debezium.sink.iceberg.type",
        ),
        ("debezium.sink.iceberg.destination-regexp", "(", "'(' is not a regular expression"),
        (
            "debezium.sink.iceberg.partition-by",
            "week(a)",
            "'week(a)' is not a list of partition terms (unknown transform)",
        ),
        (
            "debezium.sink.iceberg.partition-by.a.b",
            "bucket(a)",
            "'bucket(a)' is not a list of partition terms (bucket needs",
        ),
        ("debezium.sink.batch.batch-size-wait.max-wait-ms", "1", "wait-interval-ms is not below debezium.sink.batch"),
        (
            "value.converter",
            "io.confluent.connect.avro.AvroConverter",
            "value.converter.schema.registry.url: is missing, and the AvroConverter needs it",
        ),
        (
            "value.converter",
            "io.apicurio.registry.utils.converter.AvroConverter",
            "value.converter.apicurio.registry.url: is missing, and Apicurio's AvroConverter needs it; add the URL",
        ),
        (
            "value.converter",
            "io.confluent.connect.json.JsonSchemaConverter",
            "value.converter.schema.registry.url: is missing, and the JsonSchemaConverter needs it",
        ),
        ("value.converter", "a.B", "names an unknown converter; use org.apache.kafka.connect.json.JsonConverter or io"),
        (
            "value.converter",
            "org.apache.kafka.connect.json.JsonConvertor",
            "names an unknown converter; did you mean org.apache.kafka.connect.json.JsonConverter?",
        ),
        (
            "key.converter",
            "org.apache.kafka.connect.converters.StringConverter",
            "did you mean org.apache.kafka.connect.storage.StringConverter?",
        ),
        ("value.converter.schema.registry.url", "localhost:8081", "'localhost:8081' is not a list of URLs; write http"),
        ("value.converter.basic.auth.credentials.source", "SASL_INHERIT", "is not known; write URL or USER_INFO"),
        ("value.converter.schema.registry.ulr", "http://r", "did you mean value.converter.schema.registry.url?"),
        ("debezium.format.value", "avro", "value.converter"),
        ("iceberg.tables", "lake.a,lake..b", "'lake.a,lake..b' has an empty part; write table, or namespace.table"),
        ("deleted.keys.table.name", "a.", "'a.' has an empty part"),
        ("debezium.source.offset.storage.iceberg.table-name", ".a", "'.a' has an empty part"),
        ("debezium.source.schema.history.internal.iceberg.table-name", "a. .b", "'a. .b' has an empty part"),
    ],
)
def test_wrong_value(key: str, text: str, said: str) -> None:
    """A value that an option cannot have is a fault that says what it can."""
    assert any(said in fault for fault in faults_of({key: text}))


def test_contradictions() -> None:
    """Options that exclude each other are refused."""
    upper, lower = (f"debezium.sink.iceberg.destination-{case}case-table-names" for case in ("upper", "lower"))
    kind, own = "debezium.sink.iceberg.type", "debezium.sink.iceberg.catalog-impl"
    assert faults_of({upper: "true", lower: "true", kind: "rest", own: "a.B"}) == (
        f"-X: {own}: type is given too; keep one of them",
        f"-X: {lower}: {upper} is true too; set one of them to false",
    )


@pytest.mark.parametrize(
    "key",
    [
        "debezium.sink.iceberg.write.format.default",
        "iceberg.tables.auto-create-props.write.format.default",
        "iceberg.tables.write-props.write.format.default",
    ],
)
def test_other_files_hold_no_variants(key: str) -> None:
    """Variants beside Avro or ORC data files are refused, wherever the format is set; each alone is all right."""
    variants = "debezium.sink.iceberg.nested-as-variant"
    assert faults_of({variants: "true", key: "avro"}) == (
        f"-X: {variants}: variants are written to Parquet files only; set {key} to parquet, or this to false",
    )
    assert load([], GOOD | {key: "Avro" if "props" in key else "avro"}, {}).notes == ()
    wins = {"iceberg.tables.write-props.write.format.default": "parquet"}
    assert load([], GOOD | {key: "avro", variants: "true"} | wins, {}).table.new_tables.nested_as_variant


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("debezium.sink.iceberg.s3.secret-access-kee", "hunter2"),
        ("sasl.pasword", "hunter2"),
        ("my.password", "hunter2"),
        ("debezium.sink.iceberg.uri", "x://user:hunter2@h"),
        ("key.converter", "hunter2"),
        ("errors.tolerance", "${env:SECRET}"),
        ("errors.tolerance", "x${env:SECRET}"),
        ("debezium.sink.iceberg.jdbc.password", "${db.password:hunter2}"),
        ("sasl.jaas.config", "${kafka.login:PlainLoginModule required hunter2;}"),
    ],
)
def test_secrets_stay_out_of_messages(key: str, text: str) -> None:
    """No message holds the value of an unknown key, of one that may be secret, or one that was looked up."""
    environ = {"SECRET": "hunter2"}
    with pytest.raises(ConfigError) as caught:
        load([], GOOD | {key: text, "unknown": "hunter2"}, environ)
    assert "hunter2" not in repr(caught.value)
    assert len(caught.value.faults) >= 1


def test_a_broken_value_is_not_shown_as_a_key(tmp_path: Path) -> None:
    """Lines of a PEM key that lack their continuation are faults that do not repeat them."""
    path = tmp_path / "a.properties"
    path.write_text("ssl.keystore.key=-----BEGIN PRIVATE KEY-----\n" + "aB3/" * 16 + "\n")
    with pytest.raises(ConfigError) as caught:
        load([path], GOOD, {})
    line = f"{path}:2: a key of 64 characters, not shown: is not a known key; docs/reference/options.md lists all keys"
    assert line in caught.value.faults
    assert "aB3/" not in str(caught.value)


def test_secrets_stay_out_of_representations() -> None:
    """The settings' representation shows no handed on value, and neither do notes."""
    secret = {
        "consumer.override.ssl.key.password": "hunter2",
        "producer.override.foo": "hunter2",
        "debezium.sink.iceberg.jdbc.password": "hunter2",
        "debezium.sink.iceberg.write.key": "hunter2",
        "debezium.sink.iceberg.table-prefx": "hunter2",
        "spark.ssl.keyPassword": "hunter2",
        "database.password": "hunter2",
    }
    settings = load([], GOOD | secret, {})
    assert settings.spark["spark.ssl.keyPassword"] == "hunter2"
    assert settings.notes
    assert "hunter2" not in repr(settings)


def test_connect_keys_are_noted() -> None:
    """Keys of a Kafka Connect worker are named in one note."""
    notes = load([], GOOD | {"plugin.path": "x", "tasks.max": "2"}, {}).notes
    assert notes == ("these keys configure a Kafka Connect worker and have no effect here: plugin.path, tasks.max",)


def test_a_key_that_is_longer_than_any_is_no_slip(monkeypatch: pytest.MonkeyPatch) -> None:
    """What may have been meant is not looked for: it would take longer than all the rest."""
    compared: list[str] = []
    monkeypatch.setattr(difflib, "get_close_matches", lambda word, *_, **__: compared.append(word) or [])
    keys = {"topicz": "t", f"topics.{'e' * 30}." * 10: "t"}
    with pytest.raises(ConfigError) as told:
        load([], keys, {})
    assert sum("is not a known key" in fault for fault in told.value.faults) == 2
    assert max(map(len, compared)) < 100


@pytest.mark.parametrize("warehouse", ["file://[w/", "s3://[bucket/w"])
def test_a_warehouse_that_is_no_url_is_a_fault(warehouse: str) -> None:
    """A bracket where an address would be is told as any other warehouse that is no path."""
    assert "is not a local path and no catalog is named" in fault_of("debezium.sink.iceberg.warehouse", warehouse)


@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"])
def test_options_of_a_jvm_with_an_open_quote_are_a_fault(key: str) -> None:
    """The start ended with Python's own words for it; a quote that is closed is Spark's to read."""
    assert "has a quote that is not closed; close it" in fault_of(key, "-Dname=it's")
    assert load([], GOOD | {key: "-Dname='it is'"}, {}).spark[key] == "-Dname='it is'"
