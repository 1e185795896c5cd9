"""settings -> findings: Java, jars, broker, registry, catalog, store, search. Each asks once and waits some seconds."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import version

from pyspark.sql import SparkSession

from connector.cli.doctor.findings import Finding
from connector.errors import ConnectorError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import map_java_errors
from connector.kafka.admin import KafkaAdmin, missing_rights
from connector.kafka.brokers.address import ClusterAddress
from connector.kafka.brokers.listeners import require_listener
from connector.kafka.consumer.reader_check import check_reader
from connector.kafka.registry.registries import open_registry
from connector.opensearch.client import map_opensearch_errors, opensearch_client
from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java import find_java_home, inspect_java
from connector.runtime.spark.store_jars import fetch_store_jars
from connector.runtime.topic_partitions import UNKNOWN_TOPIC_IDS
from connector.settings import SinkSettings, SourceSettings
from connector.settings.converters.message_format import AnyRegistry
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.source.snapshots.discovery import find_in_other_case, find_tables

_Settings = SinkSettings | SourceSettings
_TIMEOUT_S = 8.0


def check_python() -> Iterator[Finding]:
    """Tell which Python, Spark and icebridge run."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok", f"Python {python}, icebridge {version('icebridge')}, PySpark {version('pyspark')}")


def check_java() -> Iterator[Finding]:
    """Find the Java that Spark runs on; raises FatalError where there is none."""
    home = find_java_home()
    java = inspect_java(home / "bin" / "java")
    if java is None:
        yield Finding("java", "failed", f"{home / 'bin' / 'java'} does not run", "reinstall it, or unset JAVA_HOME")
        return
    yield Finding("java", "ok", f"Java {java.major} at {java.home}")


def check_jars(settings: _Settings) -> Iterator[Finding]:
    """Have the jars of Spark, Kafka, Iceberg and the catalog's store; raises FatalError where one is not to be had."""
    jars = (*fetch_jars("spark"), *fetch_store_jars(settings.catalog, settings.spark))
    yield Finding("jars", "ok", f"{len(jars)} jars are there, with the checksums of jars.lock")


def check_broker(settings: _Settings) -> Iterator[Finding]:
    """Ask the brokers who they are and what this user may do; raises RetriableError, FatalError."""
    # librdkafka says neither that a server refuses connections nor that it offers nothing known, and tries until time
    # is over.
    require_listener(ClusterAddress.of(settings.kafka.client("admin")), _TIMEOUT_S)
    reader = check_reader(settings.kafka) if isinstance(settings, SinkSettings) else None
    cluster = KafkaAdmin(settings.kafka, _TIMEOUT_S)
    description = cluster.describe()
    yield Finding("broker", "ok", f"cluster {description.id} with {_count(description.brokers, 'broker')}")
    if isinstance(settings, SinkSettings) and reader is not None:
        yield Finding("broker", "ok", reader.line)
        yield from (Finding("broker", "warning", note) for note in reader.notes)
        yield from _check_sink_topics(settings, cluster)
    elif "CREATE" not in description.rights and description.rights:
        yield Finding(
            "broker", "warning", "this user may not create topics", "allow CREATE, or make the topics beforehand"
        )


def _check_sink_topics(settings: SinkSettings, cluster: KafkaAdmin) -> Iterator[Finding]:
    topics = cluster.select_topics()
    wanted = set(settings.kafka.topics) - topics.keys()
    if wanted:
        yield Finding(
            "topics", "warning", f"not there yet: {', '.join(sorted(wanted))}", "check the names, or wait for them"
        )
    if not topics:
        yield Finding("topics", "warning", "no topic matches", "check topics, topics.regex, or the source's table list")
        return
    partitions = sum(topic.partitions for topic in topics.values())
    yield Finding("topics", "ok", f"{_count(len(topics), 'topic')}, {_count(partitions, 'partition')}")
    if any(topic.id in UNKNOWN_TOPIC_IDS for topic in topics.values()):
        text = "it tells no topic ids, as before Kafka 2.8: a topic that is made again is known by its end alone"
        yield Finding("broker", "warning", text, "upgrade the brokers, or reset offsets after making a topic again")
    needs: dict[str, tuple[str, ...]] = dict.fromkeys(topics, ("READ", "DESCRIBE"))
    if settings.errors.tolerance == "all":
        needs[settings.errors.topic] = ("WRITE",)
    lacking = missing_rights(cluster.topic_rights(needs.keys()), needs)
    for name, operations in lacking.items():
        yield Finding("rights", "failed", f"no {' and '.join(operations)} on topic {name}", "add an ACL for this user")
    if not lacking:
        yield Finding("rights", "ok", "this user may read the topics and write dead letters")


def check_registries(settings: _Settings) -> Iterator[Finding]:
    """Ask the registries of keys and values; raises RetriableError, FatalError."""
    registries = _registries(settings)
    if not registries:
        yield Finding("registry", "skipped", "no converter needs one")
    for registry in registries:
        open_registry(registry).ping()
        yield Finding("registry", "ok", "it answers")


def _registries(settings: _Settings) -> list[AnyRegistry]:
    if isinstance(settings, SinkSettings):
        given = [settings.events.key_registry, settings.events.value_registry]
    else:
        sides = (settings.outgoing.key.registration, settings.outgoing.value.registration)
        given = [None if side is None else side.registry for side in sides]
    return list(dict.fromkeys(one for one in given if one is not None))


def check_search(settings: _Settings) -> Iterator[Finding]:
    """Ask OpenSearch for its version; raises RetriableError, FatalError."""
    if isinstance(settings.destination, OpenSearchSettings):
        with map_opensearch_errors("asking for the version"):
            info = opensearch_client(settings.destination.connection).info()
        yield Finding("search", "ok", f"{info['version'].get('distribution', 'search')} {info['version']['number']}")


def check_catalog(spark: SparkSession, settings: _Settings) -> Iterator[Finding]:
    """Open the catalog, find the tables, and write, read and delete a file; raises RetriableError, FatalError."""
    catalog = Catalog(spark, settings.catalog)
    if isinstance(settings, SourceSettings):
        offsets = settings.capture.offsets_table
        tables = find_tables(catalog, settings)
        missing = sorted(name for name, parts in tables.items() if catalog.find(*parts) is None)
        yield Finding("catalog", "ok", f"{settings.catalog.name}: {len(tables) - len(missing)} tables to read")
        if missing or not tables:
            text = f"no such table: {', '.join(missing)}" if missing else "no table matches"
            others = (find_in_other_case(catalog, *tables[name]) for name in missing)
            meant = ", ".join(other for other in others if other)
            todo = f"check table.include.list{f'; did you mean {meant}?' if meant else ''}"
            yield Finding("catalog", "warning", text, todo)
    else:
        offsets = settings.table.offsets_table
        yield Finding("catalog", "ok", f"{settings.catalog.name} answers")
    own = catalog.load(offsets)
    if own is None:
        yield Finding("store", "skipped", f"there is no {catalog.full_name(offsets)} yet: nothing was written so far")
        return
    yield from _check_store(own)


def _check_store(table: Table) -> Iterator[Finding]:
    path = f"{table.java.location()}/data/doctor-{uuid.uuid4().hex}"
    where = str(table.java.location())
    try:
        with map_java_errors(f"trying the store at {where}"):
            io = table.java.io()
            stream = io.newOutputFile(path).createOrOverwrite()
            stream.write(b"icebridge")
            stream.close()
            io.newInputFile(path).getLength()
            io.deleteFile(path)
    except ConnectorError as error:
        todo = "check the store's credentials, and the right to write, read and delete below this location"
        yield Finding("store", "failed", str(error), todo)
        return
    yield Finding("store", "ok", f"a file at {where} can be written, read and deleted")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
