"""docker/: what the image leaves out is there to be left out, and what it starts with is settings."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sysconfig
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import javaproperties
import pytest

from connector.cli.arguments import load_settings
from connector.runtime.jvm.lockfile import LOCK_FILE, parse_lockfile
from connector.settings import load

DOCKER = Path(__file__).parents[2] / "docker"
PACKAGES = Path(sysconfig.get_path("purelib"))


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docker_{name}", DOCKER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SLIM = _script("slim")


OF_VENV = {"installing packages", "building packages"}
"""What `python -m venv` brings, which differs from one Python to the next."""


@pytest.mark.parametrize("pattern", [pattern for pattern, why in SLIM.GONE.items() if why not in OF_VENV])
def test_what_goes_was_there(pattern: str) -> None:
    """Each pattern still finds something in the installed packages, so that none outlives what it was for."""
    assert next(PACKAGES.glob(pattern), None) is not None


def test_what_catalogs_and_clusters_need_stays() -> None:
    """No pattern takes what is said to stay."""
    gone = {path for path, _ in SLIM.find_unused(PACKAGES)}
    for pattern in SLIM.KEPT:
        kept = set(PACKAGES.glob(pattern))
        assert kept and not kept & gone


def test_only_what_is_found_is_deleted(tmp_path: Path) -> None:
    """Files and folders that a pattern names go, all others stay."""
    for name in ("pyspark/examples/a.py", "pyspark/jars/derby-1.jar", "pyspark/jars/other-1.jar", "numpy/x/tests/t.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    SLIM.delete_unused(tmp_path)
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["other-1.jar"]


def test_the_bill_names_packages_and_jars() -> None:
    """The bill of materials has a package URL for each Python package, and a checksum for each jar."""
    jars = parse_lockfile(LOCK_FILE.read_text("utf-8"))["spark"]
    bill = json.loads(json.dumps(_script("sbom").render_bill(distributions(), jars)))
    purls = {part["purl"] for part in bill["components"]}
    assert len(purls) == len(bill["components"])
    assert any(purl.startswith("pkg:pypi/pyspark@") for purl in purls)
    assert f"pkg:maven/{jars[0].group}/{jars[0].name}@{jars[0].version}" in purls


@pytest.mark.parametrize("name", ["sink", "search-sink", "source"])
def test_the_stacks_files_are_good(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each connector of compose.yaml has a configuration that can be used, with what .env gives."""
    given = dict(line.split("=", 1) for line in (DOCKER / ".env").read_text("utf-8").splitlines() if line[:1].isupper())
    for key, variable in {"AWS_ACCESS_KEY_ID": "S3_ACCESS_KEY", "AWS_SECRET_ACCESS_KEY": "S3_SECRET_KEY"}.items():
        monkeypatch.setenv(key, given[variable])
    for key in ("SPARK_MASTER", "SPARK_AUTH_SECRET"):
        monkeypatch.setenv(key, given[key])
    files = tuple(
        DOCKER / each for each in ("image.properties", "config/stack.properties", f"config/{name}.properties")
    )
    assert load_settings(files, ()).kafka.bootstrap_servers == "kafka:9092"


def _entry(tmp_path: Path, *arguments: str, roots: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run the entry point with an `icebridge` that prints its arguments, and its places below a folder."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    stand_in = tmp_path / "bin" / "icebridge"
    stand_in.write_text('#!/bin/sh\necho "$@"\n')
    stand_in.chmod(0o755)
    for root in roots:
        (tmp_path / root).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / root).write_text("")
    text = (DOCKER / "entrypoint.sh").read_text("utf-8")
    for place in (
        "/config/*",
        *(f"/debezium/{name}/" for name in ("external", "external-configuration", "conf", "config")),
    ):
        text = text.replace(f" {place}", f" {tmp_path}{place}")
    script = tmp_path / "entrypoint.sh"
    script.write_text(text)
    environ = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    sh = shutil.which("sh")
    assert sh is not None
    done = subprocess.run([sh, str(script), *arguments], env=environ, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).replace(f"{tmp_path}/", "/").strip()


def test_the_entry_point_finds_the_files(tmp_path: Path) -> None:
    """Files of /config come in the order of their names, those of Debezium's places after them."""
    code, told = _entry(tmp_path)
    assert (code, told.split(":")[1].strip()) == (3, "no settings")
    roots = ("config/b.properties", "config/a.properties", "debezium/config/application.properties")
    own = "/opt/icebridge/image.properties"
    files = "/config/a.properties /config/b.properties /debezium/config/application.properties"
    assert _entry(tmp_path, roots=roots) == (0, f"run {own} {files}")
    assert _entry(tmp_path, "validate") == (0, f"validate {own} {files}")
    for words in (("run", "--once"), ("status", "--output", "json"), ("run", "-X", "name=a b", "-Xb=c", "--once")):
        assert _entry(tmp_path, *words) == (0, f"{' '.join(words)} {own} {files}")
    for words in (("run", "--once", "/x"), ("status", "--output", "json", "/x"), ("doctor", "--help"), ("dlq", "list")):
        assert _entry(tmp_path, *words) == (0, " ".join(words))
    assert _entry(tmp_path, "--help") == (0, "--help")


def test_debeziums_operator_is_answered(tmp_path: Path) -> None:
    """Its files are read, and its probes and Prometheus reach health and metrics at port 8080 from outside."""
    roots = (
        "debezium/external/kafka/kafka.properties",
        "debezium/external-configuration/kafka/kafka.properties",
        "debezium/conf/application.properties",
        "debezium/config/application.properties",
    )
    code, told = _entry(tmp_path, roots=roots)
    assert (code, told.split()[2:]) == (0, [f"/{root}" for root in roots])
    mine = tmp_path / "application.properties"
    mine.write_text("bootstrap.servers=b:9092\ntopics=t\ndebezium.sink.iceberg.warehouse=/w\n")
    settings = load([DOCKER / "image.properties", mine])
    assert (settings.server.health_host, settings.server.health_port) == ("0.0.0.0", 8080)
    assert settings.server.listeners == ("http://127.0.0.1:8083",)


@pytest.mark.parametrize("secret", ["plain", r"a\b\\n", "=begins", ": \u00e4 'q\"$x%s"])
def test_spark_s_daemons_read_the_secret_as_it_is(secret: str, tmp_path: Path) -> None:
    """Whatever is in the secret of a standalone cluster, its master has the same as the connectors."""
    (tmp_path / "bin").mkdir()
    for name in ("python", "spark-class"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\n")
        (tmp_path / "bin" / name).chmod(0o755)
    settings, script = tmp_path / "daemon.properties", tmp_path / "entrypoint.sh"
    text = (DOCKER / "entrypoint.sh").read_text("utf-8")
    script.write_text(text.replace("/tmp/spark-daemon.properties", str(settings)))
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "SPARK_AUTH_SECRET": secret}
    subprocess.run(["/bin/sh", str(script), "spark-master"], env=environ, check=True, timeout=60)
    assert javaproperties.loads(settings.read_text("utf-8"))["spark.authenticate.secret"] == secret
    assert settings.stat().st_mode & 0o777 == 0o600
