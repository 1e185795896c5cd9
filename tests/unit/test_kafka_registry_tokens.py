"""A schema registry that lets in who has a token -> schemas; tokens come from the settings, or are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

import pytest

from connector.errors import FatalError, RetriableError
from connector.kafka.registry.confluent import SchemaRegistry
from connector.settings.converters.schema_registry import RegistrySettings
from tests.harness.http_server import serve_http

pytestmark = pytest.mark.unit

TOKEN, CLUSTER = "t0k3n", "lsrc-1"


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Give the schema to who has the token, and tells Confluent Cloud's cluster."""
        told = self.headers["Authorization"], self.headers["target-sr-cluster"]
        good = told in ((f"Bearer {TOKEN}", CLUSTER), (f"Bearer {TOKEN}", ""))
        self._answer(200 if good else 401, {"schema": "{}"} if good else {"error_code": 401, "message": "s3cret"})

    def do_POST(self) -> None:
        """Give a token to who knows the secret."""
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        basic = self.headers["Authorization"] == "Basic bWU6czNjcmV0"  # me:s3cret
        good = basic and form["grant_type"] == ["client_credentials"] and form.get("scope") in (None, ["sr"])
        self._answer(200 if good else 401, {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 600})

    def _answer(self, status: int, page: dict[str, object]) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(page if status == 200 else {"error": "invalid_client"}).encode())


@pytest.fixture
def server() -> Iterator[str]:
    """The URL of a registry that also gives tokens."""
    with serve_http(_Pages) as url:
        yield url


def _open(url: str, **bearer: str) -> SchemaRegistry:
    told = {"logical.cluster": "", **{name.replace("_", "."): text for name, text in bearer.items()}}
    pairs = {"url": url, **{f"bearer.auth.{name}": text for name, text in told.items()}}
    return SchemaRegistry(RegistrySettings(tuple(sorted(pairs.items()))))


def test_a_token_of_the_settings_lets_in(server: str) -> None:
    """It goes with each question; one that is not good is told by the family of its options, without its text."""
    static = {"credentials_source": "STATIC_TOKEN"}
    assert _open(server, token=TOKEN, **static).fetch_schema(1, "AVRO") == ("{}",)
    assert _open(server, token=TOKEN, logical_cluster=CLUSTER, **static).fetch_schema(1, "AVRO") == ("{}",)
    with pytest.raises(FatalError, match=r"status 401.*check its bearer\.auth settings") as refused:
        _open(server, token="wrong", **static).fetch_schema(1, "AVRO")
    assert "wrong" not in str(refused.value)


@pytest.mark.parametrize("scope", ["", "sr"])
def test_a_token_is_asked_for_with_the_clients_secret(server: str, scope: str) -> None:
    """Where nobody gives one, it is tried again, as an identity provider may be away; no secret is told."""
    asking = {"credentials_source": "OAUTHBEARER", "issuer_endpoint_url": f"{server}/token", "client_id": "me"}
    own = _open(server, client_secret="s3cret", scope=scope, **asking)
    assert own.fetch_schema(1, "AVRO") == ("{}",)
    with pytest.raises(RetriableError, match="OAuthTokenError") as away:
        _open(server, client_secret="other", scope=scope, **asking).fetch_schema(1, "AVRO")
    assert "other" not in str(away.value)
