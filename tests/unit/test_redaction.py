"""texts -> texts without secrets, in logs, on terminals and in messages about a configuration."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import javaproperties
import pytest
from click.testing import CliRunner

from connector import redaction
from connector.cli.main import main
from connector.redaction import SPARK_REGEX, redact, redact_login
from connector.runtime.jvm.gateway import write_arguments, write_settings

KAFKA = {"bootstrap.servers": "h:1", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}
MARK = "mArk3r-0f-secret"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "no jdbc:mysql://root:pa@ss@db:3306/x?password=abc&useSSL=true",
            "no jdbc:mysql://***@db:3306/x?password=***&useSSL=true",
        ),
        ("jdbc:postgresql://h/d?user=u&sslpassword=x", "jdbc:postgresql://h/d?user=u&sslpassword=***"),
        ("jdbc:sqlserver://h;user=a;password={x;y};z=1", "jdbc:sqlserver://h;user=a;password=***;z=1"),
        ("jdbc:oracle:thin:scott/tiger@h:1521", "jdbc:oracle:***@h:1521"),
        ('Plain required username="u" password="p\\"q";', 'Plain required username="u" password=***;'),
        ('{"client_secret": "x y", "a": 1}', '{"client_secret": ***, "a": 1}'),
        ("https://a.blob.core.windows.net/c?se=1&sig=abc%3D", "https://a.blob.core.windows.net/c?se=1&sig=***"),
        ("s3.secret-access-key=zzz, other=1", "s3.secret-access-key=***, other=1"),
        ("AccountName=a;AccountKey=b==;x=1", "AccountName=a;AccountKey=***;x=1"),
    ],
)
def test_secrets_are_masked_by_where_they_stand(text: str, left: str) -> None:
    """Passwords of URLs, and what stands behind a name that means a secret, do not get through."""
    assert redact(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "abfss://box@account.dfs.core.windows.net/w: not found",
        "http://h:8080/a/b@c",
        "Unexpected token: STRING at 5",
        "SASL_SSL sasl.mechanism=PLAIN, key=5 design=3",
        "topic-1@5",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """A container's name before a host, a port, a parser's token: messages stay readable."""
    assert redact(text) == text


@pytest.mark.parametrize("piece", ["a", "password", "secret={;", "jdbc:oracle:", "'", 'secret="\\\\', "://a:"])
def test_a_long_text_takes_no_longer_than_its_length(piece: str) -> None:
    """Whoever sends a text chooses how long it is: what looked through it from each of its letters would never end."""
    text = piece * (200_000 // len(piece))
    assert redact(f"{text} password=abc").endswith("***")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a=password=x secret =y", "a=password=*** secret =***"),
        ("passwordtoken=x,token=y", "passwordtoken=***,token=***"),
        ("secret={a;secret={b", "secret=***;secret=***"),
        ("secret='a secret=b", "secret='a secret=***"),
    ],
)
def test_names_that_follow_each_other(text: str, left: str) -> None:
    """Each value is masked, and only values."""
    assert redact(text) == left


def test_values_that_were_given_are_masked_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of the configuration is masked where nothing around it tells; short words and plain settings are not."""
    monkeypatch.setattr(redaction, "_known", redaction.KnownSecrets())
    redaction.remember_secret("x.credential", f"id:{MARK}")
    redaction.remember_secret("uri", "jdbc:mysql://u:in-the-url@h/d")
    redaction.remember_secret("sasl.jaas.config", 'x required username="u" password="in-the-login";')
    redaction.remember_secret("jdbc.password", "pw")
    redaction.remember_secret("client.credentials-provider", "org.x.Provider")
    told = f"Bad {MARK}, in-the-url, in-the-login, pw, org.x.Provider"
    assert redact(told) == "Bad ***, ***, ***, pw, org.x.Provider"


def test_values_of_a_scope_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others remember too stays, and none takes more room than it may."""
    monkeypatch.setattr(redaction, "_known", redaction.KnownSecrets())
    redaction.remember_secret("a.password", "of-both")
    with redaction.SecretScope() as scope:
        for value in ("of-both", "of-the-scope", *(f"value-{number}" for number in range(redaction.MOST_PER_SCOPE))):
            redaction.remember_secret("b.password", value)
    redaction.remember_secret("c.password", "after-it")
    assert redact("of-both of-the-scope after-it") == "*** *** ***"
    assert len(redaction._known.longest_first) == redaction.MOST_PER_SCOPE + 1
    scope.forget()
    scope.forget()
    assert redact("of-both of-the-scope after-it") == "*** of-the-scope ***"


def test_spark_hides_by_name_or_value() -> None:
    """Spark's pages hide what has a secret's name, and any value with a password in a URL."""
    base = "spark.sql.catalog.l."
    names = ("credential", "adls.auth.shared-key.account.key", "s3.access-key-id", "adls.sas-token.a", "header.X-Own")
    others = ("spark.hadoop.fs.s3a.secret.key", "kafka.sasl.jaas.config", "kafka.ssl.keystore.key")
    for text in (*(base + name for name in names), *others, "http://u:p@h"):
        assert re.search(SPARK_REGEX, text), text
    for text in ("spark.master", f"{base}warehouse", "kafka.sasl.mechanism", "s3://b/w"):
        assert not re.search(SPARK_REGEX, text), text


@pytest.mark.parametrize(
    "given",
    [
        {"bootstrap.servers": f"u:{MARK}@h:9092"},
        {"bootstrap.servers": f"SASL://u:{MARK}/x@h"},
        {"security.protocol": f"https://u:{MARK}@h"},
        {"debezium.sink.iceberg.type": f"jdbc:x?password={MARK}"},
        {"debezium.sink.iceberg.uri": f"jdbc:nothing://u:{MARK}@h/d"},
        {"debezium.sink.iceberg.warehouse": f"odd://k:{MARK}@b/w", "debezium.sink.iceberg.type": "hive"},
        {"consumer.override.sasl.jaas.config": MARK, "consumer.override.security.protocol": "sasl_ssl"},
    ],
)
def test_validate_prints_no_secret(given: dict[str, str], tmp_path: Path) -> None:
    """A faulty value is shown without the user and password in it."""
    file = tmp_path / "sink.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in (KAFKA | given).items()))
    done = CliRunner().invoke(main, ["validate", str(file)])
    assert done.exit_code == 3, done.output
    assert MARK not in done.output + str(done.stderr)


def test_shown_values_lose_what_is_before_an_at() -> None:
    """What may be user and password is masked, even where slashes are in it."""
    assert redact_login(f"u:{MARK}/x@h:9092") == "***@h:9092"
    assert redact_login(f"s3://k:{MARK}@b/w") == "s3://***@b/w"
    assert redact_login("plain") == "plain"


@pytest.mark.parametrize("terminal", [True, False])
def test_no_way_to_standard_error_shows_a_secret(terminal: bool) -> None:
    """Our lines, other libraries' lines, uncaught errors, in threads too: no secret and no local variable."""
    code = f"""
import logging, threading
import structlog
from connector.runtime.monitoring.logs import configure_logging
configure_logging(terminal={terminal})
def fail():
    held = "{MARK}-local"
    raise ValueError("Cannot open jdbc:mysql://root:{MARK}@db/x?password={MARK}")
structlog.get_logger().warning("said", reason="password={MARK}", nested=dict(topic=["http://u:{MARK}@h"]))
for log in (structlog.get_logger(), logging.getLogger("x")):
    try:
        fail()
    except ValueError:
        log.exception("failed")
worker = threading.Thread(target=fail)
worker.start()
worker.join()
fail()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert MARK not in done.stdout + done.stderr
    assert done.stderr.count("Cannot open jdbc:mysql://***@db/x?password=***") == 4
    if not terminal:
        assert json.loads(done.stderr.splitlines()[0])["nested"] == {"topic": ["http://***@h"]}


def test_settings_go_to_the_jvm_by_private_files(tmp_path: Path) -> None:
    """Settings, and Java's options with a secret in them, stand in files of their owner alone, and read back."""
    conf = {"spark.a": "ü = \\x", "spark.driver.extraJavaOptions": f"-Xss4m -Dx.password='{MARK} \"q'"}
    arguments = write_settings(conf, tmp_path)
    assert MARK not in " ".join(arguments)
    files = {file.name: file for file in tmp_path.iterdir()}
    assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o600}
    read = javaproperties.loads(files["spark.properties"].read_text())
    assert read["spark.a"] == conf["spark.a"]
    assert read["spark.driver.extraJavaOptions"] == f"@{files['java.options']}"
    assert files["java.options"].read_text() == f'"-Xss4m"\n"-Dx.password={MARK} \\"q"\n'


def test_arguments_of_a_jvm_without_spark_are_private_too(tmp_path: Path) -> None:
    """Java reads class path, heap and options from a file of their owner alone."""
    conf = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": f"-Dx.password='{MARK} q'"}
    spark, folder = tmp_path / "spark", tmp_path / "own"
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "slf4j-api-2.jar").touch()
    folder.mkdir()
    argument = write_arguments(spark, conf, (Path("/a.jar"),), folder)
    (file,) = folder.iterdir()
    assert argument == f"@{file}"
    assert file.stat().st_mode & 0o777 == 0o600
    lines = file.read_text().splitlines()
    assert lines[:3] == ['"-cp"', f'"{spark}/conf:{spark}/jars/slf4j-api-2.jar:{spark}/jars/*:/a.jar"', '"-Xmx2g"']
    assert f'"-Dx.password={MARK} q"' in lines[3:-1]


def test_compose_listens_on_this_host_alone() -> None:
    """No port of the example is open to the network."""
    text = (Path(__file__).parents[2] / "docker/compose.yaml").read_text()
    ports = [port for listed in re.findall(r"ports: \[(.*)\]", text) for port in re.findall(r'"([^"]*)"', listed)]
    assert len(ports) >= text.count("ports:") == len(re.findall(r"ports: \[", text)) > 1
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", ["debezium.format.key", "key.converter.schemas.enable"])
def test_a_faulty_value_is_shown_where_a_name_only_speaks_of_keys(name: str, tmp_path: Path) -> None:
    """The key of a message is no secret: a faulty value of an option about it is shown."""
    file = tmp_path / "sink.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in (KAFKA | {name: "jsno"}).items()))
    done = CliRunner().invoke(main, ["validate", str(file)])
    assert done.exit_code == 3, done.output
    assert f"{name}: 'jsno' is not" in done.output + str(done.stderr)
