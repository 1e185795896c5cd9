"""the user's jars -> which components they already hold: whoever gives a jar is not made to fetch another."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

_HOLDS = {
    "s3": (r"iceberg-aws-bundle|awssdk", "software/amazon/awssdk/services/s3/S3Client.class"),
    "gcs": (r"iceberg-gcp-bundle|google-cloud-storage", "com/google/cloud/storage/Storage.class"),
    "adls": (
        r"iceberg-azure-bundle|azure-storage-file-datalake",
        "com/azure/storage/file/datalake/DataLakeFileClient.class",
    ),
    "postgresql": (r"postgresql", "org/postgresql/Driver.class"),
    "mysql": (r"mysql-connector", "com/mysql/cj/jdbc/Driver.class"),
    "mariadb": (r"mariadb-java-client", "org/mariadb/jdbc/Driver.class"),
}


def missing_components(components: Iterable[str], spark: Mapping[str, str], shipped: Path) -> tuple[str, ...]:
    """Leave out the components whose jar the user gives to Spark, or has put into the folder of Spark's own jars.

    A local jar is looked into, any other is known by its name or coordinates.
    """
    return tuple(
        name for name in components if not any(_has_component(name, jar) for jar in _given_jars(spark, shipped))
    )


def _given_jars(spark: Mapping[str, str], shipped: Path) -> Iterator[str]:
    yield from filter(None, re.split(r"[,\s]+", spark.get("spark.jars.packages", "")))
    for text in filter(None, re.split(r"[,\s]+", spark.get("spark.jars", ""))):
        yield from _expand_globs(text)
    for text in filter(None, spark.get("spark.driver.extraClassPath", "").split(":")):
        yield from _expand_globs(text)
    yield from map(str, shipped.glob("*.jar"))


def _expand_globs(text: str) -> Iterator[str]:
    parts = urlsplit(text)
    path = unquote(parts.path) if parts.scheme in {"file", "local"} else text
    if path.endswith("*"):
        yield from map(str, Path(path[:-1]).glob("*.jar"))
    else:
        yield path


def _has_component(component: str, jar: str) -> bool:
    name, entry = _HOLDS[component]
    if re.search(name, jar.rpartition("/")[2]):
        return True
    # Spark's own jars, some hundred, are known by their names.
    if not Path(jar).is_file() or "/pyspark/jars/" in jar:
        return False
    try:
        with zipfile.ZipFile(jar) as archive:
            return entry in archive.NameToInfo
    except (OSError, zipfile.BadZipFile):
        return False
