"""deploy/ and docker/: manifests name what exists, in one version."""

from __future__ import annotations

import json
import re
import tomllib
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
import yaml
from lightkube.models import apps_v1, core_v1

from connector.cli.arguments import load_settings
from connector.runtime.jvm.lockfile import LOCK_FILE, parse_lockfile
from connector.server.http.apps import HealthApi
from connector.settings import load
from tests.compose.env import read_env
from tests.compose.tutorial import STOP, TELLS, read_steps

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "kubernetes"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def _documents(name: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / name).read_text("utf-8"))}


def _unknown_fields(document: object, kind: Any, path: str) -> list[str]:
    """Fields of a document that its kind does not have, at any depth."""
    if get_origin(kind) in {Union, types.UnionType}:
        kinds = [each for each in get_args(kind) if each is not type(None)]
        return min((_unknown_fields(document, each, path) for each in kinds), key=len)
    if isinstance(document, list) and get_origin(kind) is list:
        return [one for item in document for one in _unknown_fields(item, get_args(kind)[0], path)]
    if not isinstance(document, dict) or not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return []
    names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind)
    known = {key: value for key, value in document.items() if key in names}
    inner = [one for key, value in known.items() for one in _unknown_fields(value, hints[names[key]], f"{path}.{key}")]
    return [*(f"{path}.{key}" for key in document.keys() - names.keys()), *inner]


KINDS = {"ConfigMap": core_v1.ConfigMap, "Secret": core_v1.Secret, "Deployment": apps_v1.Deployment}


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_is_of_its_kind(kind: str) -> None:
    """Each document of sink.yaml has its kind's fields, those that must be there, and values of their types."""
    document = _documents("sink.yaml")[kind]
    assert msgspec.convert(document, KINDS[kind]).metadata.name == "icebridge-sink"
    assert _unknown_fields(document, KINDS[kind], kind) == []


class _Mounted(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    path: str


class _MountedSecret(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    path: str
    secretType: Literal["GCPServiceAccount", "HadoopDelegationToken", "Generic"]  # noqa: N815 - the kind's field


class _RestartPolicy(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["Never", "Always", "OnFailure"]
    onFailureRetryInterval: int | None = None  # noqa: N815


class _SparkPod(msgspec.Struct, forbid_unknown_fields=True):
    cores: int
    memory: str
    memoryOverhead: str | None = None  # noqa: N815
    serviceAccount: str | None = None  # noqa: N815
    terminationGracePeriodSeconds: int | None = None  # noqa: N815
    securityContext: core_v1.SecurityContext | None = None  # noqa: N815
    configMaps: list[_Mounted] = []  # noqa: N815
    secrets: list[_MountedSecret] = []


class _Executors(_SparkPod, forbid_unknown_fields=True):
    instances: int = 1


class _Application(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of kind SparkApplication (v1beta2) that our manifest may have."""

    type: Literal["Java", "Python", "Scala", "R"]
    mode: Literal["cluster", "client"]
    pythonVersion: Literal["2", "3"]  # noqa: N815
    sparkVersion: str  # noqa: N815
    image: str
    mainApplicationFile: str  # noqa: N815
    arguments: list[str]
    restartPolicy: _RestartPolicy  # noqa: N815
    sparkConf: dict[str, str]  # noqa: N815
    driver: _SparkPod
    executor: _Executors


def test_the_spark_application_is_of_its_kind() -> None:
    """It has the operator's fields; its Spark is ours, its file in the image, its Secret and ConfigMap in sink.yaml."""
    document = _documents("spark-application.yaml")["SparkApplication"]
    assert document["apiVersion"] == "sparkoperator.k8s.io/v1beta2"
    application = msgspec.convert(document["spec"], _Application)
    assert f"pyspark=={application.sparkVersion}" in PROJECT["dependencies"]
    python = read_env()["PYTHON_VERSION"]
    packages = f"local:///opt/icebridge/lib/python{python}/site-packages/"
    assert (ROOT / application.mainApplicationFile.removeprefix(packages)).is_file()
    others = _documents("sink.yaml")
    assert [one.name for one in application.driver.configMaps] == [others["ConfigMap"]["metadata"]["name"]]
    assert [one.name for one in application.driver.secrets] == [others["Secret"]["metadata"]["name"]]
    assert set(others["ConfigMap"]["data"]) == {Path(application.arguments[-1]).name}


def test_a_field_that_no_kind_has_is_found() -> None:
    """A field in the wrong place is named with its place; a value of another type is refused."""
    wrong = _documents("sink.yaml")["Deployment"]
    container = wrong["spec"]["template"]["spec"]["containers"][0]
    container["livenessProbe"]["path"] = "/q/health/live"
    assert _unknown_fields(wrong, apps_v1.Deployment, "") == [".spec.template.spec.containers.livenessProbe.path"]
    container["livenessProbe"]["periodSeconds"] = "often"
    with pytest.raises(msgspec.ValidationError, match="periodSeconds"):
        msgspec.convert(wrong, apps_v1.Deployment)


def test_the_parts_of_a_pod_fit() -> None:
    """Each mount has a volume, each volume its ConfigMap or Secret, and the Deployment selects its own pods."""
    documents = _documents("sink.yaml")
    spec = documents["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == set(volumes)
    assert volumes["config"]["configMap"]["name"] == documents["ConfigMap"]["metadata"]["name"]
    assert volumes["secrets"]["secret"]["secretName"] == documents["Secret"]["metadata"]["name"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    user = re.search(r"^USER (\d+):(\d+)$", (ROOT / "docker" / "Dockerfile").read_text("utf-8"), re.M)
    assert user is not None
    assert pod["securityContext"]["runAsUser"] == int(user[1])
    assert pod["securityContext"]["fsGroup"] == int(user[2])


def test_one_version_everywhere() -> None:
    """The version of pyproject.toml is that of the stack's image and of the manifests, and CHANGELOG.md knows it."""
    version = PROJECT["version"]
    assert read_env()["ICEBRIDGE_VERSION"] == version
    container = _documents("sink.yaml")["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    application = _documents("spark-application.yaml")["SparkApplication"]["spec"]
    assert container["image"] == application["image"] == f"icebridge:{version}"
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_a_stop_has_the_same_time_everywhere() -> None:
    """Two minutes for the batch in progress, where the defaults are ten seconds (compose) and thirty (Kubernetes)."""
    pod = _documents("sink.yaml")["Deployment"]["spec"]["template"]["spec"]
    driver = _documents("spark-application.yaml")["SparkApplication"]["spec"]["driver"]
    stack = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))["services"]
    assert pod["terminationGracePeriodSeconds"] == driver["terminationGracePeriodSeconds"] == 120
    assert {stack[name]["stop_grace_period"] for name in ("sink", "source", "search-sink")} == {"2m"}


def test_a_start_has_the_same_time_everywhere() -> None:
    """The image's health check waits as long for a start as the pod's startup probe: a busy machine needs minutes."""
    (container,) = _documents("sink.yaml")["Deployment"]["spec"]["template"]["spec"]["containers"]
    probe = container["startupProbe"]
    check = re.search(r"--start-period=(\d+)s", (ROOT / "docker" / "Dockerfile").read_text("utf-8"))
    assert check is not None and int(check[1]) == probe["periodSeconds"] * probe["failureThreshold"] == 300


def _settings_of_the_pod(folder: Path) -> Path:
    """The ConfigMap's file, with the Secret's values beside it."""
    documents = _documents("sink.yaml")
    for key, text in documents["Secret"]["stringData"].items():
        (folder / key).write_text(text)
    file = folder / "sink.properties"
    file.write_text(documents["ConfigMap"]["data"]["sink.properties"].replace("/secrets", str(folder)))
    return file


def test_a_pods_settings_are_good(tmp_path: Path) -> None:
    """The ConfigMap's file is a configuration, with the Secret's values by the names that it has."""
    file = _settings_of_the_pod(tmp_path)
    assert load_settings((ROOT / "docker" / "image.properties", file), ()).name == "shop"


def test_probes_ask_for_what_is_answered(tmp_path: Path) -> None:
    """Each probe's path is a route of health, at the port that the image opens; the root may be read-only."""
    documents = _documents("sink.yaml")
    container = documents["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    paths = {route.path for route in HealthApi(None, None).routes()}  # type: ignore[arg-type]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths
        assert container[probe]["httpGet"]["port"] == "http"
    server = load([ROOT / "docker" / "image.properties", _settings_of_the_pod(tmp_path)]).server
    assert container["ports"] == [{"name": "http", "containerPort": server.health_port}]
    assert server.health_host == "0.0.0.0"
    asked = documents["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert asked["prometheus.io/path"] in paths and asked["prometheus.io/port"] == str(server.health_port)
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_the_spark_application_has_the_locked_jars() -> None:
    """Driver and executors have the jars of jars.lock on their class path, for Spark and for S3."""
    conf = _documents("spark-application.yaml")["SparkApplication"]["spec"]["sparkConf"]
    locked = parse_lockfile(LOCK_FILE.read_text("utf-8"))
    wanted = [f"/opt/icebridge/jars/{one.file_name}" for name in ("spark", "s3") for one in locked[name]]
    assert conf["spark.driver.extraClassPath"].split(":") == wanted
    assert conf["spark.executor.extraClassPath"].split(":") == wanted


def test_the_stack_is_one_file_that_can_be_read() -> None:
    """Every service has an image or a build, a profile, a health check unless it ends, and ports on loopback alone."""
    stack = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))
    profiles = set(read_env()["COMPOSE_PROFILES"].split(","))
    assert profiles <= {each for service in stack["services"].values() for each in service["profiles"]}
    for name, service in stack["services"].items():
        assert service["image"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        if name != "connector" and not service["image"].startswith("icebridge"):
            assert service["healthcheck"]["test"], name
        for needed in service.get("depends_on", {}):
            assert needed in stack["services"], name


@pytest.mark.parametrize("name", ["sink", "search-sink", "source"])
def test_mounted_files_exist(name: str) -> None:
    """Each file that a connector of the stack mounts is there."""
    stack = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))
    for volume in stack["services"][name]["volumes"]:
        assert (ROOT / "docker" / volume.split(":")[0]).is_file()


COMPOSE_COMMAND = re.compile(r"docker compose --file (\S+)(?: --profile (\S+))? (\w+)(.*)")


def test_the_tutorials_commands_name_what_is_there() -> None:
    """Each docker compose command of the tutorial names the stack's file and its services, and no profile but all.

    A profile stands in place of .env's list: what its services depend on is not there then.
    """
    stack = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))
    steps = read_steps()
    for step in steps:
        if not (found := COMPOSE_COMMAND.search(step.command)):
            continue
        file, profile, verb, rest = found.groups()
        assert (ROOT / file).is_file()
        assert profile in {None, "'*'"}, step.command
        named = [word for word in rest.split() if not word.startswith("-")]
        if verb in {"exec", "kill"} or (verb == "up" and named):
            assert named[0] in stack["services"], step.command
    assert all(any(part in step.command for step in steps) for part in TELLS)
    assert any(step.command.startswith(STOP) for step in steps)


def test_the_tutorial_speaks_of_the_ports_of_the_stack() -> None:
    """Each address of this host in the tutorial is a port of .env."""
    ports = {value for key, value in read_env().items() if key.endswith("_PORT")}
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    asked = set(re.findall(r"http://localhost:(\d+)", text))
    assert asked and asked <= ports


def test_alerts_ask_for_metrics_that_there_are() -> None:
    """Each rule's metrics are in the reference; each has a text, and pages that exist for what to do."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    (group,) = yaml.safe_load((ROOT / "docker" / "config" / "alerts.yml").read_text("utf-8"))["groups"]
    asked = {name for rule in group["rules"] for name in re.findall(r"\b[a-z]+_\w+", rule["expr"])}
    assert len(asked) > 4 and [name for name in asked if f"`{name}`" not in page] == []
    assert all(rule["annotations"].keys() == {"summary", "todo"} for rule in group["rules"])
    pages = {name for rule in group["rules"] for name in re.findall(r"docs/[\w/-]+\.md", rule["annotations"]["todo"])}
    assert [name for name in pages if not (ROOT / name).exists()] == []


def test_the_pod_says_how_many_cores_it_takes() -> None:
    """Spark runs as many tasks as the pod asks for cores: by itself it would take all of the node."""
    documents = _documents("sink.yaml")
    master = re.search(r"^spark\.master=local\[(\d+)\]$", documents["ConfigMap"]["data"]["sink.properties"], re.M)
    (container,) = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert master is not None and master[1] == container["resources"]["requests"]["cpu"]


def test_any_free_port_may_be_a_containers() -> None:
    """A port of .env is this host's: none of those within containers, where others have their places."""
    stack = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))["services"]
    ports = [port for service in stack.values() for port in service.get("ports", [])]
    assert ports and all(re.fullmatch(r"127\.0\.0\.1:\$\{\w+_PORT\}:\d+", port) for port in ports)
    assert "${" not in stack["kafka"]["environment"]["KAFKA_LISTENERS"]


def test_the_databases_password_is_that_of_the_env_file() -> None:
    """Debezium's connector logs in with what PostgreSQL was started with, whatever that is."""
    stack = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))["services"]
    connector = json.loads((ROOT / "docker" / "config" / "inventory.json").read_text("utf-8"))
    assert connector["database.password"] == "${env:POSTGRES_PASSWORD}"
    given = stack["connect"]["environment"]
    assert given["POSTGRES_PASSWORD"] == stack["postgres"]["environment"]["POSTGRES_PASSWORD"] == "${POSTGRES_PASSWORD}"
    assert given["CONNECT_CONFIG_PROVIDERS"] == "env" and given["CONNECT_CONFIG_PROVIDERS_ENV_CLASS"]
