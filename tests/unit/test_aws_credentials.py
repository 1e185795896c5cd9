"""The machine's AWS configuration -> credentials as AWS's own libraries find and renew them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from attrs import define, field

from connector.errors import FatalError, RetriableError
from connector.opensearch.client import _build_signer
from connector.opensearch.sigv4 import RequestSigner
from connector.runtime import aws_credentials
from connector.runtime.aws_credentials import AwsCredentials, AwsIdentity, find_credentials
from connector.settings.opensearch.connection import AwsSettings, ConnectionSettings
from tests.harness.http_server import serve_http


@define
class Agent:
    """What a container or an instance asks for its role's credentials, and STS; each answer has keys of its own."""

    url: str = ""
    lasts_s: float = 3600.0
    status: int = 200
    code: str = "AccessDenied"
    given: int = 0
    asked: list[dict[str, list[str]]] = field(factory=list)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Agent]:
    """An agent on loopback, and a machine without any other credentials."""
    made = Agent()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.given += 1
            ends = datetime.now(UTC) + timedelta(seconds=made.lasts_s)
            told = {"AccessKeyId": f"AK{made.given}", "SecretAccessKey": "secret", "Token": "t"}
            self._answer(json.dumps({**told, "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}), "application/json")

        def do_POST(self) -> None:
            made.asked.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
            made.given += 1
            ends = (datetime.now(UTC) + timedelta(seconds=made.lasts_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
            keys = f"<AccessKeyId>AK{made.given}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
            held = f"<Credentials>{keys}<SessionToken>t</SessionToken><Expiration>{ends}</Expiration></Credentials>"
            space = 'xmlns="https://sts.amazonaws.com/doc/2011-06-15/"'
            refused = f"<Error><Code>{made.code}</Code><Message>not you</Message></Error>"
            good = f"<AssumeRoleResponse {space}><AssumeRoleResult>{held}</AssumeRoleResult></AssumeRoleResponse>"
            bad = f"<ErrorResponse {space}>{refused}</ErrorResponse>"
            self._answer(good if made.status == 200 else bad, "text/xml")

        def _answer(self, text: str, kind: str) -> None:
            self.send_response(made.status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with serve_http(Handler) as url:
        made.url = f"{url}/"
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", made.url)
        aws_credentials._holders.clear()
        yield made
        aws_credentials._holders.clear()


def test_credentials_of_a_container_are_kept_and_renewed(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for once while they last, and anew before they end."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url)
    assert find_credentials(AwsIdentity(), "aws.region") == AwsCredentials("AK1", "secret", "t")
    assert find_credentials(AwsIdentity(), "aws.region").access_key == "AK1"
    aws_credentials._holders.clear()
    agent.lasts_s = 60.0  # botocore renews what ends within minutes
    short = [find_credentials(AwsIdentity(), "aws.region").access_key for _ in range(2)]
    assert len(set(short)) == 2
    agent.lasts_s = 3600.0
    long = [find_credentials(AwsIdentity(), "aws.region").access_key for _ in range(3)]
    assert len(set(long)) == 1
    assert long[0] not in short


def test_requests_are_signed_by_the_credentials_of_the_moment(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index's requests follow a role that is renewed, with the session's token; keys of the settings stay."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url)
    agent.lasts_s = 60.0
    signer = _build_signer(ConnectionSettings(("https://a:9200",), aws=AwsSettings("eu-west-1")))
    assert isinstance(signer, RequestSigner)
    told = [signer("GET", "https://a:9200/", None) for _ in range(2)]
    assert len({one["Authorization"].partition("/")[0] for one in told}) == 2
    assert {one["x-amz-security-token"] for one in told} == {"t"}
    given = agent.given
    own = _build_signer(ConnectionSettings(("https://a:9200",), aws=AwsSettings("eu-west-1", "OWN", "secret")))
    assert isinstance(own, RequestSigner)
    assert "Credential=OWN/" in own("GET", "https://a:9200/", None)["Authorization"]
    assert agent.given == given


def test_a_role_is_taken_on_and_kept(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """STS is asked with the machine's own keys, once while the role's last; its refusal ends the start."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OWN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own secret")
    role = AwsIdentity(role="arn:aws:iam::1:role/r", region="eu-west-1")
    assert [find_credentials(role, "aws.role.arn").access_key for _ in range(2)] == ["AK1", "AK1"]
    assert agent.asked[0]["RoleArn"] == ["arn:aws:iam::1:role/r"]
    aws_credentials._holders.clear()
    agent.status = 403
    with pytest.raises(FatalError, match=r"aws\.role\.arn: AWS refuses: .*AccessDenied.*not you"):
        find_credentials(role, "aws.role.arn")


@pytest.mark.parametrize(("status", "code"), [(400, "Throttling"), (503, "ServiceUnavailable"), (500, "odd")])
def test_a_busy_sts_is_asked_again_later(agent: Agent, monkeypatch: pytest.MonkeyPatch, status: int, code: str) -> None:
    """A sink whose role is renewed in that moment tries its batch again, as with a registry of AWS's that is busy."""
    for name, text in (("ACCESS_KEY_ID", "OWN"), ("SECRET_ACCESS_KEY", "own secret"), ("MAX_ATTEMPTS", "1")):
        monkeypatch.setenv(f"AWS_{name}", text)
    agent.status, agent.code = status, code
    with pytest.raises(RetriableError, match=rf"aws\.role\.arn: AWS is busy: .*{code}"):
        find_credentials(AwsIdentity(role="arn:aws:iam::1:role/r", region="eu-west-1"), "aws.role.arn")


def test_profiles_are_read_and_missing_ones_named(agent: Agent, tmp_path: Path) -> None:
    """A profile's keys, or what is wrong with it; a machine without any credentials says so."""
    (tmp_path / "credentials").write_text("[p]\naws_access_key_id=AKP\naws_secret_access_key=x\n")
    assert find_credentials(AwsIdentity(profile="p"), "aws.profile").access_key == "AKP"
    with pytest.raises(FatalError, match=r"aws\.profile: .*config profile \(q\) could not be found"):
        find_credentials(AwsIdentity(profile="q"), "aws.profile")
    with pytest.raises(FatalError, match=r"aws\.region: no AWS credentials are found"):
        find_credentials(AwsIdentity(), "aws.region")
    assert not agent.given


def test_an_agent_that_is_away_is_asked_again_later(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """What may come back is no reason to stop for good."""
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url)
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    agent.status = 500
    with pytest.raises(RetriableError, match=r"aws\.region: AWS credentials are not available now"):
        find_credentials(AwsIdentity(), "aws.region")


def test_without_botocore_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its keys are taken; for all else what to install is told."""

    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(aws_credentials.importlib, "import_module", refuse)
    keys = {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s"}
    assert find_credentials(AwsIdentity(), "x", keys) == AwsCredentials("A", "s")
    for identity, environ in ((AwsIdentity(), {}), (AwsIdentity(profile="p"), keys), (AwsIdentity(role="r"), keys)):
        with pytest.raises(FatalError, match=r"x: .*; set AWS_ACCESS_KEY_ID and .*pip install 'icebridge\[aws\]'"):
            find_credentials(identity, "x", environ)
