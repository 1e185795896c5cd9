"""catalog properties -> the jars they need, faults of what cannot be served, and Python's names for them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from connector.errors import ConfigError, FatalError
from connector.iceberg.catalog.file_io import AzureFileIO, file_io_for
from connector.runtime.jvm.jars import STORES
from connector.runtime.jvm.lockfile import LOCK_FILE, parse_lockfile
from connector.runtime.jvm.user_jars import missing_components
from connector.runtime.spark.session_conf import session_conf
from connector.settings import CatalogSettings, load
from connector.settings.iceberg.required_jars import guess_components, required_components, to_pyiceberg
from connector.settings.source.settings import load_source

PG = {"type": "jdbc", "uri": "jdbc:postgresql://h/d"}
AWAY = "org.apache.iceberg.hadoop.HadoopFileIO"


def catalog(given: dict[str, str], spark: dict[str, str] | None = None) -> CatalogSettings:
    """The catalog of a sink with these properties."""
    named = {f"debezium.sink.iceberg.{key}": text for key, text in given.items()}
    return load([], {"topics": "t", "bootstrap.servers": "h:1", **named, **(spark or {})}, {}).catalog


@pytest.mark.parametrize(
    ("properties", "needed"),
    [
        ({"warehouse": "/w"}, ()),
        ({"warehouse": "file:///w"}, ()),
        ({"warehouse": "hdfs://h/w", "type": "hive", "uri": "thrift://h:1"}, ()),
        ({**PG, "warehouse": "/w"}, ("postgresql",)),
        ({**PG, "warehouse": "s3://b/w"}, ("postgresql", "s3")),
        ({"type": "jdbc", "uri": "jdbc:mysql://h/d", "warehouse": "s3a://b/w"}, ("mysql", "s3")),
        ({"uri": "jdbc:mariadb://h/d", "warehouse": "S3N://b/w"}, ("mariadb", "s3")),
        ({"uri": "jdbc:mysql+srv:loadbalance://h/d", "warehouse": "/w"}, ("mysql",)),
        ({"uri": "jdbc:mysql:replication://h1,h2/d", "warehouse": "/w"}, ("mysql",)),
        ({"type": "jdbc", "uri": "jdbc:sqlite:/f", "warehouse": "gs://b/w"}, ("gcs",)),
        ({"type": "jdbc", "uri": "jdbc:sqlite:/f", "warehouse": "abfss://c@a.dfs.core.windows.net/w"}, ("adls",)),
        ({"type": "jdbc", "uri": "jdbc:sqlite:/f", "warehouse": "wasb://c@a.blob.core.windows.net/w"}, ("adls",)),
        ({"type": "glue", "warehouse": "s3://b/w"}, ("s3",)),
        ({"type": "nessie", "uri": "http://h/api/v2", "warehouse": "s3://b/w"}, ("s3",)),
        ({"type": "bigquery", "warehouse": "gs://b/w"}, ("gcs",)),
        ({"type": "rest", "uri": "http://h", "warehouse": "name"}, ()),
        ({"type": "rest", "uri": "http://h", "warehouse": "name", "s3.endpoint": "http://s"}, ("s3",)),
        ({"type": "rest", "uri": "http://h", "warehouse": "arn:aws:s3tables:eu:1:bucket/b"}, ("s3",)),
        ({"type": "rest", "uri": "http://h", "io-impl": "org.apache.iceberg.gcp.gcs.GCSFileIO"}, ("gcs",)),
        ({"catalog-impl": "org.apache.iceberg.aws.dynamodb.DynamoDbCatalog", "warehouse": "s3://b"}, ("s3",)),
        ({"type": "jdbc", "uri": "jdbc:sqlite:/f", "warehouse": "/w", "write.data.path": "s3://b/d"}, ("s3",)),
    ],
)
def test_what_a_catalog_needs_comes_by_itself(properties: dict[str, str], needed: tuple[str, ...]) -> None:
    """Scheme, type, URI and classes of a configuration tell which components of the lock it needs."""
    settings = catalog(properties)
    assert required_components({**settings.properties, **settings.table_properties}) == needed


def test_encryption_that_is_turned_off_is_no_fault() -> None:
    """`s3.sse.type=none` asks for nothing."""
    assert catalog({**PG, "s3.sse.type": "None", "s3.sse.key": "k", "warehouse": "s3://b/w"}).name == "default"


def test_components_are_in_the_lock() -> None:
    """Whatever can be needed is in the lock, and known to the search among the user's jars."""
    assert set(parse_lockfile(LOCK_FILE.read_text())) >= STORES
    assert set(missing_components(STORES, {}, Path("/nowhere"))) == STORES


def test_a_rest_catalog_without_a_hint_is_worth_a_try() -> None:
    """A REST catalog names its store with its tables: S3's jar is tried, unless a path or property says otherwise."""
    assert guess_components({"type": "rest", "uri": "u", "warehouse": "name"}) == ("s3",)
    for more in ({"warehouse": "/w"}, {"warehouse": "file:///w"}, {"gcs.project-id": "p"}, {"io-impl": AWAY}):
        assert guess_components({"type": "rest", "uri": "u", **more}) == ()
    assert guess_components({"type": "jdbc", "warehouse": "name"}) == ()


@pytest.mark.parametrize(
    ("properties", "fault"),
    [
        ({**PG, "warehouse": "cos://b/w"}, r"warehouse: is on a store of an unknown scheme \('cos'\); use one"),
        ({**PG, "warehouse": "s4://b/w"}, r"unknown scheme \('s4'\)"),
        (
            {"type": "jdbc", "uri": "jdbc:oracle:thin:u/pw@h", "warehouse": "/w"},
            r"uri: has no JDBC driver.*'oracle'.*jar",
        ),
        (
            {"type": "jdbc", "uri": "jdbc:aws-wrapper:postgresql://u:pw@h", "warehouse": "/w"},
            r"uri: has no JDBC driver.*'aws-wrapper'.*jar",
        ),
        ({"type": "hadoop", "warehouse": "s3a://b/w"}, r"warehouse: is on a store \('s3a'\).*hadoop-aws.*spark\.jars"),
        ({**PG, "io-impl": AWAY, "warehouse": "gs://b/w"}, "gcs-connector"),
        ({**PG, "s3.remote-signing-enabled": "true", "warehouse": "s3://b/w"}, "remote-signing-enabled: is not supp"),
        ({**PG, "s3.sse.type": "kms", "warehouse": "s3://b/w"}, r"s3\.sse\.type: has no effect.*default encryption"),
        ({**PG, "s3.sse.type": "custom", "s3.sse.key": "pw", "warehouse": "s3://b/w"}, r"s3\.sse\.key: has no effect"),
        ({**PG, "gcs.encryption-key": "pw", "warehouse": "gs://b/w"}, r"gcs\.encryption-key: has no effect"),
        ({**PG, "gcs.no-auth": "true", "warehouse": "gs://b/w"}, r"gcs\.no-auth: is not supp.*gcs\.oauth2\.token"),
        (
            {**PG, "fs.s3a.encryption.algorithm": "SSE-KMS", "warehouse": "s3://b/w"},
            r"fs\.s3a\.encryption\.algorithm: has no effect",
        ),
    ],
)
def test_what_cannot_be_had_is_a_fault(properties: dict[str, str], fault: str) -> None:
    """A store or driver that there are no jars for is refused, with the way out and without a value."""
    with pytest.raises(ConfigError, match=fault) as wrong:
        catalog(properties)
    assert "pw" not in str(wrong.value)
    with pytest.raises(ConfigError, match=fault.replace("warehouse: ", "")):
        load_source(
            [],
            {"connector.class": "IcebergSource", "bootstrap.servers": "h:1", "topic.prefix": "p"}
            | {f"iceberg.catalog.{key}": text for key, text in properties.items()},
            {},
        )


@pytest.mark.parametrize("key", ["spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"])
def test_jars_of_the_user_count(key: str) -> None:
    """Where the user gives jars, what ours do not serve is taken to be served by them."""
    for properties in (
        {"type": "jdbc", "uri": "jdbc:oracle:thin:@h", "warehouse": "/w"},
        {"type": "hadoop", "warehouse": "s3a://b/w"},
    ):
        assert catalog(properties, {key: "x:y:1"}).properties["type"] == properties["type"]


def test_a_jar_that_the_user_gives_is_not_fetched(tmp_path: Path) -> None:
    """A component is left out when a jar's name, coordinates or content, or a folder of the class path, has it."""
    renamed = tmp_path / "everything.jar"
    with zipfile.ZipFile(renamed, "w") as archive:
        archive.writestr("org/postgresql/Driver.class", b"")
    given = {
        "spark.jars": f"{renamed.as_uri()},hdfs://h/jars/mysql-connector-j-9.jar",
        "spark.jars.packages": "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
        "spark.driver.extraClassPath": f"/x:{tmp_path}/more/*",
    }
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mariadb-java-client-3.jar").touch()
    assert missing_components(("adls", "gcs", "mariadb", "mysql", "postgresql", "s3"), given, tmp_path / "x") == (
        "adls",
        "gcs",
    )
    (tmp_path / "iceberg-gcp-bundle-1.11.0.jar").touch()
    assert missing_components(("adls", "gcs"), {}, tmp_path) == ("adls",)


def test_java_gets_a_region_for_an_own_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of one's own has no region, without which the SDK does not start; Hadoop's names are Iceberg's too."""
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)

    def handed(properties: dict[str, str]) -> dict[str, str]:
        conf = session_conf("app", catalog(properties), {}, [], Path("/src"))
        return {key.removeprefix("spark.sql.catalog.default."): text for key, text in conf.items()}

    own = {**PG, "warehouse": "s3://b/w", "s3.endpoint": "http://minio:9000"}
    assert handed(own)["client.region"] == to_pyiceberg(own)["client.region"] == "us-east-1"
    assert handed(own | {"s3.region": "eu-1"})["client.region"] == "eu-1"
    amazon = own | {"s3.endpoint": "https://s3.eu-west-1.amazonaws.com"}
    assert "client.region" not in handed(amazon)
    hadoop = {"fs.s3a.access.key": "k", "fs.s3a.path.style.access": "true"}
    for known in (handed(own | hadoop), to_pyiceberg(own | hadoop)):
        assert (known["s3.access-key-id"], known["s3.path-style-access"]) == ("k", "true")


def test_python_knows_the_properties_by_its_names() -> None:
    """Addressing, roles and Azure's account reach PyIceberg's FileIO; names of its own win."""
    host = {"s3.endpoint": "https://store.example:9000"}
    assert to_pyiceberg(host)["s3.force-virtual-addressing"] == "true"
    assert to_pyiceberg(host | {"s3.path-style-access": "true"})["s3.force-virtual-addressing"] == "false"
    assert "s3.force-virtual-addressing" not in to_pyiceberg({"s3.endpoint": "http://127.0.0.1:9000"})
    assert to_pyiceberg(host | {"s3.force-virtual-addressing": "false"})["s3.force-virtual-addressing"] == "false"
    assert to_pyiceberg({"client.assume-role.arn": "a"})["client.role-arn"] == "a"
    azure = to_pyiceberg({"adls.sas-token.acc.dfs.core.windows.net": "t"}, "abfss://c@acc.dfs.core.windows.net/w")
    assert (azure["adls.account-name"], azure["adls.sas-token"]) == ("acc", "t")


@pytest.mark.parametrize("account", ["acc", "acc.dfs.core.windows.net"])
def test_python_looks_for_azures_files_where_java_does(account: str) -> None:
    """The address that Java has for an account is Python's for both interfaces; its own names win."""
    own = {"adls.dfs-storage-scheme": "https"}
    given = {f"adls.connection-string.{account}": "http://127.0.0.1:10000/acc", **own}
    python = to_pyiceberg(given, "abfss://c@acc.dfs.core.windows.net/w")
    assert {key: value for key, value in python.items() if "-storage-" in key} == {
        "adls.blob-storage-authority": "127.0.0.1:10000",
        "adls.blob-storage-scheme": "http",
        "adls.dfs-storage-authority": "127.0.0.1:10000",
        **own,
    }
    private = {f"adls.connection-string.{account}": "https://acc.z1.dfs.core.example"}
    python = to_pyiceberg(private, "abfss://c@acc.dfs.core.windows.net/w")
    assert python["adls.blob-storage-authority"] == ".z1.blob.core.example"
    assert python["adls.dfs-storage-authority"] == ".z1.dfs.core.example"


def test_files_of_one_store_share_a_door(tmp_path: Path) -> None:
    """The client of a store is made once per process and properties; Azure's containers are found in locations."""
    assert file_io_for({"a": "1"}, str(tmp_path)) is file_io_for({"a": "1"}, f"{tmp_path}/other")
    assert file_io_for({"a": "2"}, str(tmp_path)) is not file_io_for({"a": "1"}, str(tmp_path))
    place = "abfss://box@acc.dfs.core.windows.net/w/f"
    azure = file_io_for({}, place)
    assert isinstance(azure, AzureFileIO)
    assert azure.properties["adls.account-name"] == "acc"
    with pytest.raises(FatalError, match="vend credentials, or give keys"):
        file_io_for({"s3.remote-signing-enabled": "true"}, "s3://b/w")
    assert AzureFileIO.parse_location(place)[2] == "box/w/f"
