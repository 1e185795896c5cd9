"""properties files -> settings of a source: which file is one, names, and every fault at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from connector.errors import ConfigError
from connector.settings import SourceSettings, load
from connector.settings.configdef.common import SOURCE_KEYS
from connector.settings.source import capture
from connector.settings.source.settings import is_source, load_source
from serde.emit.type_mapping import HandlingModes

BASE = "connector.class=IcebergSource\nbootstrap.servers=localhost:9092\ntopic.prefix=p\niceberg.catalog.warehouse=/w\n"
ROOT = Path(__file__).parents[2]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a properties file below the test's directory."""

    def put(text: str) -> Path:
        path = tmp_path / "source.properties"
        path.write_text(text, "utf-8")
        return path

    return put


def source(write: Write, text: str = "") -> SourceSettings:
    return load_source([write(BASE + text)], environ={})


def faults(write: Write, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_source([write(text)], environ={})
    return "\n".join(caught.value.faults)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("connector.class=IcebergSource", True),
        ("connector.class=io.debezium.connector.iceberg.IcebergConnector", True),
        ("debezium.source.connector.class=IcebergSourceConnector", True),
        ("connector.class=org.apache.iceberg.connect.IcebergSinkConnector", False),
        ("debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector", False),
        ("topic.prefix=p\ntable.include.list=a.b", False),
        ("", False),
    ],
)
def test_the_connector_class_makes_a_source(write: Write, text: str, *, expected: bool) -> None:
    """A file is a source's when its connector class names an Iceberg source, and a sink's otherwise."""
    assert is_source([write(text)]) is expected


def test_defaults_are_debeziums(write: Write) -> None:
    """What is not given is as in Debezium."""
    settings = source(write)
    outgoing = settings.outgoing
    assert outgoing.modes == HandlingModes("precise", "adaptive", "bytes")
    assert (outgoing.tombstones, outgoing.skipped, outgoing.transactions) == (True, {"t"}, False)
    assert (outgoing.key.schemas, outgoing.value.schemas) == (True, True)
    assert settings.capture.snapshot_mode == "initial"
    assert settings.notes == ()


def test_names_of_debezium_server_and_of_the_sink_are_taken(write: Write) -> None:
    """Keys behind debezium.source. and the sink's catalog prefix mean the same, so files can be shared."""
    text = """
        debezium.source.connector.class=IcebergSource
        bootstrap.servers=localhost:9092
        debezium.source.topic.prefix=lake
        debezium.source.snapshot.mode=no_data
        debezium.sink.iceberg.warehouse=/other
        debezium.sink.iceberg.io.manifest.cache-enabled=true
        debezium.format.value=json
        debezium.format.value.schemas.enable=false
    """
    settings = load_source([write(text)], environ={})
    assert settings.outgoing.prefix == "lake"
    assert settings.capture.snapshot_mode == "no_data"
    assert settings.catalog.properties["warehouse"] == "/other"
    assert settings.catalog.properties["io.manifest.cache-enabled"] == "true"
    assert not settings.outgoing.value.schemas


def test_tables_columns_and_keys_are_matched_whole(write: Write) -> None:
    """Lists are expressions for whole names in any case; a comma in one is escaped; keys are per table."""
    text = r"""
table.include.list=db\\.t{1\\,2},Other\\.x
column.exclude.list=db\\.t\\.secret.*
message.key.columns=db\\.t:a,b;(.*)\\.x:c
"""
    capture = source(write, text).capture
    assert [capture.takes(name) for name in ("db.t", "DB.tt", "db.ttt", "other.x", "a.other.x")] == [
        True,
        True,
        False,
        True,
        False,
    ]
    flagged = source(write, r"table.include.list=(?i)a\\.b|c\\.d").capture
    assert [name for name in ("A.b", "xa.b", "a.bc", "c.d", "c.dd", "xc.d") if flagged.takes(name)] == ["A.b", "c.d"]
    assert capture.keeps("db.t", "open")
    assert not capture.keeps("db.t", "secrets")
    assert [capture.key_columns(name) for name in ("db.t", "z.x", "z.y")] == [("a", "b"), ("c",), ()]


def test_a_table_has_the_key_columns_of_all_entries_that_match_it(write: Write) -> None:
    """As in Debezium, an expression for many tables and an entry for one of them add up, each column once."""
    capture = source(write, "message.key.columns=(.*)[.]t.*:tenant;db.t1:id,tenant;db.u:id\n").capture
    assert [capture.key_columns(f"db.{name}") for name in ("t1", "t2", "u", "v")] == [
        ("tenant", "id"),
        ("tenant",),
        ("id",),
        (),
    ]


def test_key_and_value_have_converters_of_their_own(write: Write) -> None:
    """JSON and Avro are chosen per side, each with its registry, subjects and login; names are adjusted by modes."""
    text = """
        value.converter=io.confluent.connect.avro.AvroConverter
        value.converter.schema.registry.url=http://r
        value.converter.basic.auth.credentials.source=USER_INFO
        value.converter.basic.auth.user.info=me:s3cret
        value.converter.value.subject.name.strategy=io.confluent.kafka.serializers.subject.RecordNameStrategy
        value.converter.auto.register.schemas=false
        key.converter.schemas.enable=false
        schema.name.adjustment.mode=avro
        field.name.adjustment.mode=avro_unicode
    """
    outgoing = source(write, text).outgoing
    assert (outgoing.key.registration, outgoing.key.schemas) == (None, False)
    assert outgoing.value.registration is not None
    assert dict(outgoing.value.registration.registry.client) == {"url": "http://r", "basic.auth.user.info": "me:s3cret"}
    assert (outgoing.value.registration.subjects, outgoing.value.registration.register) == ("RecordNameStrategy", False)
    assert (outgoing.modes.names, outgoing.modes.fields) == ("avro", "avro_unicode")
    assert "s3cret" not in repr(outgoing)


@pytest.mark.parametrize(("text", "skipped"), [("None", ""), ("C, u", "cu"), ("t,D", "td")])
def test_operations_to_skip_are_taken_in_any_case(write: Write, text: str, skipped: str) -> None:
    """Debezium's lists of operations mean the same in capital letters, as other words of its options do."""
    assert source(write, f"skipped.operations={text}\n").outgoing.skipped == frozenset(skipped)


def test_topics_are_named_as_debeziums(write: Write) -> None:
    """A topic is prefix, namespace and table; what Kafka does not allow becomes an underscore."""
    outgoing = source(write).outgoing
    assert outgoing.topic("a.b.Weird Table") == "p.a.b.Weird_Table"
    assert (outgoing.transaction_topic, outgoing.heartbeat_topic) == ("p.transaction", "__debezium-heartbeat.p")


def test_topic_creation_takes_any_setting(write: Write) -> None:
    """Settings of new topics are handed on; without keys a topic is never compacted."""
    text = "topic.creation.default.cleanup.policy=compact\ntopic.creation.default.retention.ms=5\n"
    creation = source(write, text + "topic.creation.default.partitions=7\n").outgoing.creation
    assert creation.partitions == 7
    assert creation.settings(keyed=True) == {"cleanup.policy": "compact", "retention.ms": "5"}
    assert creation.settings(keyed=False) == {"cleanup.policy": "delete", "retention.ms": "5"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("connector.class=IcebergSource\n", "bootstrap.servers: is missing"),
        ("connector.class=IcebergSource\n", "topic.prefix: is missing"),
        ("connector.class=IcebergSource\n", "iceberg.catalog.warehouse: is missing"),
        (BASE + "snapshot.modes=initial\n", "is not a known key; did you mean snapshot.mode?"),
        (BASE + "snapshot.mode=schema_only\n", "'schema_only' is not known"),
        (BASE + "table.include.list=(\n", "is not a regular expression"),
        (BASE + "table.include.list=a\ntable.exclude.list=b\n", "table.include.list is given too"),
        (BASE + "column.include.list=.*[.]id,id\n", "write <namespace>.<table>.id, or .*[.]id for"),
        (BASE + "column.exclude.list=ssn\n", "'ssn' matches no column"),
        (BASE + "message.key.columns=a.b\n", "does not name key columns"),
        (BASE + "skipped.operations=c,x\n", "is no list of operations"),
        (BASE + "topic.creation.default.cleanup.policy=gone\n", "holds an unknown policy"),
        (BASE + "value.converter=AvroConverter\n", "value.converter.schema.registry.url: is missing"),
        (BASE + "key.converter=StringConverter\n", "StringConverter cannot write events; use org.apache"),
        (BASE + "key.converter=io.apicurio.registry.utils.converter.AvroConverter\n", "is Apicurio's own converter"),
        (BASE + "value.converter.value.subject.name.strategy=X\n", "write TopicNameStrategy or RecordNameStrategy or"),
        (BASE + "field.name.adjustment.mode=avr\n", "write none or avro or avro_unicode"),
        (BASE + "debezium.sink.iceberg.upsert=true\nmax.batch.size=0\n", "'0' is outside"),
    ],
)
def test_faults_say_where_and_what_to_do(write: Write, text: str, expected: str) -> None:
    """Each fault is named with its key and the way out."""
    assert expected in faults(write, text)


def test_a_source_file_takes_every_catalog_layer() -> None:
    """The catalog files beside the samples serve a source as they serve a sink."""
    environ = dict.fromkeys(("CATALOG_USER", "CATALOG_PASSWORD", "CATALOG_CREDENTIAL", "AWS_REGION"), "x:y")
    environ |= dict.fromkeys(("NESSIE_TOKEN", "POSTGRES_PASSWORD"), "x")
    for layer in sorted((ROOT / "config/catalogs").glob("*.properties")):
        settings = load_source([ROOT / "config/iceberg-source.properties", layer], environ=environ)
        assert settings.catalog.properties["type"] == layer.stem
        assert settings.notes == ()


def test_a_sinks_file_with_a_sources_key_is_told_how_to_become_one(write: Write) -> None:
    """An option of a source in a file without connector class names the way to a source's file."""
    with pytest.raises(ConfigError, match=r"table\.include\.list: is not an option of the sink; .*connector\.class"):
        load([write("bootstrap.servers=h:1\ntopics=t\ndebezium.sink.iceberg.warehouse=/w\ntable.include.list=a\n")])


def test_keys_of_a_source_are_known_to_the_sink() -> None:
    """A sink's file that says what to capture is answered with how to make it a source's: the sink knows these keys."""
    assert {option.name for option in capture.OPTIONS} == SOURCE_KEYS


@pytest.mark.parametrize(
    "text",
    [
        "signal.enabled.channels=kafka,smoke\n",
        "signal.enabled.channels=source\nsignal.data.collection=signals\n",
        "notification.enabled.channels=sink\nnotification.sink.topic.name=a b\n",
    ],
)
def test_a_wrong_value_of_signals_is_one_fault(write: Write, text: str) -> None:
    """What would follow from the default in its place is no fault of the file."""
    assert faults(write, f"{BASE}table.include.list=a.b\n{text}").count("\n") == 0


def test_keys_of_debeziums_connectors_that_change_no_event_are_noted(write: Write) -> None:
    """A file of a database's connector need not be cleaned of what tunes the reading, or says what is so anyway."""
    tuning = "max.queue.size=8192\ndebezium.source.topic.cache.size=10\nsnapshot.fetch.size=5\n"
    same = "event.processing.failure.handling.mode=FAIL\n"
    naming = "topic.naming.strategy=io.debezium.schema.SchemaTopicNamingStrategy\n"
    (note,) = source(write, tuning + same + naming).notes
    assert note == (
        "these keys of Debezium's connectors say how a database is read and have no effect here: "
        "debezium.source.topic.cache.size, event.processing.failure.handling.mode, max.queue.size, "
        "snapshot.fetch.size, topic.naming.strategy"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("event.processing.failure.handling.mode=warn", "can only be fail here"),
        ("topic.naming.strategy=com.acme.Mine", "topics are named <topic.prefix>.<namespace>.<table>"),
        (
            "column.mask.with.10.chars=a.b.c",
            "is not supported by this source; leave the column out with column.exclude",
        ),
        ("column.mask.hash.v2.SHA-256.with.salt.x=a.b.c", "is not supported by this source; leave the column out"),
        ("converters=isbn", "converters: is not supported by this source; take it out"),
        ("snapshot.select.statement.overrides=a.b", "execute-snapshot with additional-conditions"),
        ("schema.include.list=sales", "did you mean table.include.list?"),
        ("disable_export=true", "did you mean snapshot.mode=no_data?"),
        ("identifier_columns=id", "did you mean message.key.columns?"),
    ],
)
def test_keys_of_others_that_would_change_events_are_refused(write: Write, text: str, said: str) -> None:
    """What a source does not do is no note: events would not be those that were asked for."""
    assert said in faults(write, BASE + text)
