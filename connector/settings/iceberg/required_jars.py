"""catalog properties -> the jars that its kind and store need beside Spark's own, and what they cannot be made from.

Rules only: `spark.store_jars` fetches the jars, `catalog.build` keeps the faults. Property names are Iceberg's
("AWS", "GCP", "Azure", "JDBC" of its documentation) and PyIceberg's ("Configuration", FileIO).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from connector.settings.configdef.reader import PropertyProblem
from connector.settings.iceberg.location_schemes import SCHEME

S3, GCS, ADLS = "s3", "gcs", "adls"
_STORE_OF = {
    **dict.fromkeys(("s3", "s3a", "s3n"), S3),
    "gs": GCS,
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), ADLS),
}
_BUILT_IN = frozenset({"", "file", "hdfs", "viewfs"})
_CLASSES = {"org.apache.iceberg.aws.": S3, "org.apache.iceberg.gcp.": GCS, "org.apache.iceberg.azure.": ADLS}
_FAMILIES = {
    **dict.fromkeys(("s3.", "glue.", "client.region", "client.factory", "client.credentials-provider"), S3),
    **dict.fromkeys(("client.assume-role.", "rest.sigv4-enabled", "rest.signing-"), S3),
    **dict.fromkeys(("gcs.", "gcp."), GCS),
    "adls.": ADLS,
}
_TYPES = {"glue": S3, "bigquery": GCS}
_DRIVERS = frozenset({"postgresql", "mysql", "mariadb"})
_SHIPPED_DRIVERS = frozenset({"sqlite", "derby"})
_HADOOP_JARS = {S3: "hadoop-aws", GCS: "gcs-connector", ADLS: "hadoop-azure"}
_LOCATIONS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
HADOOP_IO = "org.apache.iceberg.hadoop.HadoopFileIO"
_HADOOP_NAMES = {
    "fs.s3a.access.key": "s3.access-key-id",
    "fs.s3a.secret.key": "s3.secret-access-key",
    "fs.s3a.session.token": "s3.session-token",
    "fs.s3a.endpoint": "s3.endpoint",
    "fs.s3a.endpoint.region": "client.region",
    "fs.s3a.path.style.access": "s3.path-style-access",
}
_ENCRYPTION = (
    "s3.sse.",
    "gcs.encryption-key",
    "gcs.decryption-key",
    "fs.s3a.encryption.",
    "fs.s3a.server-side-encryption",
)
"""What asks the store, request by request, to encrypt a file: only Java's clients do so."""
OWN_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
"""Where a user names jars of their own."""


def store_of(scheme: str) -> str:
    """The store of a location's scheme, S3, GCS or ADLS; empty for any other."""
    return _STORE_OF.get(scheme, "")


def required_components(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The components of jars.lock that this catalog needs beside Spark's own, sorted."""
    components = {_STORE_OF[scheme] for scheme in _location_schemes(properties) if scheme in _STORE_OF}
    components |= {store for text in properties.values() for start, store in _CLASSES.items() if text.startswith(start)}
    components |= {store for key in properties for start, store in _FAMILIES.items() if key.startswith(start)}
    components |= {_TYPES[kind] for kind in (properties.get("type", ""),) if kind in _TYPES}
    if _uses_hadoop(properties):
        components -= set(_HADOOP_JARS)
    return tuple(sorted(components | ({_jdbc_driver(properties)} & _DRIVERS)))


def guess_components(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The components that may be needed and are worth a try: a REST catalog names the store with its tables only."""
    certain = (
        required_components(properties)
        or properties.get("io-impl") == HADOOP_IO
        or _is_path(properties.get("warehouse", ""))
    )
    return () if properties.get("type") != "rest" or certain else (S3,)


def find_problems(properties: Mapping[str, str], *, own_jars: bool) -> Iterator[PropertyProblem]:
    """What no jars of ours serve, and settings that files of tables cannot obey.

    `own_jars`: the user names jars, which are then taken to serve.
    """
    if needs_remote_signing(properties):
        todo = "turn it off and give keys, or let the catalog vend credentials (X-Iceberg-Access-Delegation)"
        yield PropertyProblem("s3.remote-signing-enabled", "is not supported by the writers of files", todo)
    if properties.get("gcs.no-auth", "").strip().lower() == "true":
        yield PropertyProblem(
            "gcs.no-auth",
            "is not supported by the writers of files",
            "leave it out and give gcs.oauth2.token, of which an emulator takes any",
        )
    for key in _find_encryption(properties):
        todo = "leave it out, and set the bucket's default encryption"
        yield PropertyProblem(key, "has no effect on the files that Python's writers make", todo)
    driver = _jdbc_driver(properties)
    if driver and driver not in _DRIVERS | _SHIPPED_DRIVERS and not own_jars:
        yield PropertyProblem("uri", f"has no JDBC driver here for '{driver}'", _describe_todo("the driver's jar"))
    if "catalog-impl" in properties or properties.get("type") == "rest":
        return
    for scheme in {_scheme(properties.get("warehouse", ""))}:
        store = _STORE_OF.get(scheme)
        if store and _uses_hadoop(properties) and not own_jars:
            what = f"is on a store ('{scheme}') that Hadoop's file systems here do not have"
            todo = f"use a catalog of another type with Iceberg's own FileIO, or {_describe_todo(_HADOOP_JARS[store])}"
            yield PropertyProblem("warehouse", what, todo)
        elif not store and scheme not in _BUILT_IN | ({"oss"} if own_jars else set()):
            known = ", ".join(sorted(_BUILT_IN - {""} | _STORE_OF.keys()))
            yield PropertyProblem(
                "warehouse", f"is on a store of an unknown scheme ('{scheme}')", f"use one of {known}"
            )


def _find_encryption(properties: Mapping[str, str]) -> Iterator[str]:
    asked = properties.get("s3.sse.type", "").strip().lower() != "none"
    for key in sorted(properties):
        if key.startswith(_ENCRYPTION) and (asked or not key.startswith("s3.sse.")):
            yield key


def needs_remote_signing(properties: Mapping[str, str]) -> bool:
    """Whether requests to S3 would have to be signed by the catalog, for want of keys."""
    return properties.get("s3.remote-signing-enabled", "").lower() == "true" and "s3.access-key-id" not in properties


def complete_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """What Java's FileIO and clients need beside the given: settings known by another name, a region for own endpoints.

    Returns only additions. A store of one's own has no region, but the AWS SDK does not start without one.
    """
    more = {new: properties[old] for old, new in _HADOOP_NAMES.items() if old in properties and new not in properties}
    if "s3.region" in properties and "client.region" not in properties:
        more["client.region"] = properties["s3.region"]
    known = {**properties, **more}
    host = _host(known.get("s3.endpoint", ""))
    if host and "client.region" not in known and not host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        more["client.region"] = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return more


def to_pyiceberg(properties: Mapping[str, str], location: str = "") -> dict[str, str]:
    """The properties by PyIceberg's names too, for a FileIO of files at `location`; what is given by them wins."""
    properties = {**properties, **complete_properties(properties)}
    more = {}
    endpoint = _host(properties.get("s3.endpoint", ""))
    if endpoint and not _is_address(endpoint):
        path_style = properties.get("s3.path-style-access", "false").lower() == "true"
        # Java's client puts the bucket into the host's name, unless told otherwise or the host is an address.
        more["s3.force-virtual-addressing"] = str(not path_style).lower()
    renamed = {
        "client.assume-role.arn": "client.role-arn",
        "client.assume-role.session-name": "client.role-session-name",
        "client.assume-role.region": "client.region",
        "adls.auth.shared-key.account.name": "adls.account-name",
        "adls.auth.shared-key.account.key": "adls.account-key",
    }
    more |= {new: properties[old] for old, new in renamed.items() if old in properties}
    if "gcs.oauth2.token" in properties:
        # Arrow wants to know an end; a token that is refused earlier fails the request.
        more["gcs.oauth2.token-expires-at"] = "4102444800000"
    return {**more, **_azure_properties(properties, location), **properties}


def _azure_properties(properties: Mapping[str, str], location: str) -> dict[str, str]:
    """Azure's account, which Java reads from the location, and the token and the address given for this account."""
    parts = urlsplit(location)
    if _STORE_OF.get(parts.scheme) != ADLS or not parts.hostname:
        return {}
    account = parts.hostname.partition(".")[0]

    def given(prefix: str) -> str:
        return next(filter(None, (properties.get(f"{prefix}.{name}") for name in (parts.hostname, account))), "")

    token = given("adls.sas-token")
    more = {"adls.sas-token": token} if token else {}
    return {"adls.account-name": account, **more, **_azure_address(account, given("adls.connection-string"))}


def _azure_address(account: str, url: str) -> dict[str, str]:
    """The address of an account's store, which Java has whole and Arrow without the account; none of no URL."""
    at = urlsplit(url)
    authority = at.netloc.removeprefix(account) if at.netloc.startswith(f"{account}.") else at.netloc
    hosts = {"blob": authority.replace(".dfs.", ".blob.", 1), "dfs": authority}
    known = {f"adls.{kind}-storage-authority": host for kind, host in hosts.items()}
    return {**known, **{f"adls.{kind}-storage-scheme": at.scheme for kind in hosts}} if authority else {}


def _location_schemes(properties: Mapping[str, str]) -> Iterator[str]:
    warehouse = properties.get("warehouse", "")
    yield S3 if warehouse.startswith("arn:aws") else _scheme(warehouse)
    yield from (_scheme(properties[key]) for key in _LOCATIONS if key in properties)


def _scheme(location: str) -> str:
    """The scheme of a location; none for a path, a name, or a drive of Windows."""
    match = re.match(f"({SCHEME})://?", location)
    return match[1].lower() if match else ""


def _is_path(warehouse: str) -> bool:
    return warehouse.startswith("/") or _scheme(warehouse) in _BUILT_IN - {""}


def _uses_hadoop(properties: Mapping[str, str]) -> bool:
    return properties.get("type") == "hadoop" or properties.get("io-impl") == HADOOP_IO


def _jdbc_driver(properties: Mapping[str, str]) -> str:
    """The database of a JDBC URI, as its driver is named; what stands behind a `+` is how it is reached."""
    match = re.match(r"jdbc:([^:+/]+)(?:\+[^:]*)?:", properties.get("uri", ""))
    return match[1].lower() if match and properties.get("type") in {"jdbc", None} else ""


def _describe_todo(jar: str) -> str:
    return f"give {jar} by spark.jars or spark.jars.packages"


def _host(endpoint: str) -> str:
    try:
        return urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").hostname or ""
    except ValueError:
        return ""


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
