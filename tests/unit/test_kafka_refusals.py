"""Refusals of registries -> errors that say what to do, by their status, name and code; no text of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from connector.errors import FatalError, RetriableError
from connector.kafka.registry.confluent import SchemaRegistry
from connector.kafka.registry.refusals import find_reason, refusal_error
from connector.settings.converters.schema_registry import RegistrySettings
from serde.wire_format import UnknownSchema
from tests.harness.http_server import serve_http


class _Refusing(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = json.dumps({"error_code": 42201, "message": "s3cret"}).encode()
        self.send_response(422)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = _answer  # noqa: N815 - the server's names


@pytest.fixture
def refusing() -> Iterator[str]:
    """The URL of a registry that takes nothing."""
    with serve_http(_Refusing) as url:
        yield url


def test_a_schema_that_is_refused_is_told_by_its_code(refusing: str) -> None:
    """Confluent's registry numbers its errors; its texts, which may quote the schema, are not told."""
    registry = SchemaRegistry(RegistrySettings((("url", refusing),)))
    said = (
        rf"registry {refusing}: registering a schema under s: status 422 \(error 42201\); the registry does not take it"
    )
    with pytest.raises(FatalError, match=said) as told:
        registry.schema_id("s", '"int"', "AVRO", register=True)
    assert "s3cret" not in str(told.value)


def test_a_status_decides_what_to_do() -> None:
    """What is missing is unknown, who is busy is asked again, a login and an incompatible schema are a person's."""
    assert isinstance(refusal_error("r: asking", 404, "", "basic.auth"), UnknownSchema)
    for status in (429, 500, 503):
        assert isinstance(refusal_error("r: asking", status, "", "basic.auth"), RetriableError)
    assert str(refusal_error("r: asking", 401, "", "apicurio.auth")) == (
        "registry r: asking: status 401; check its apicurio.auth settings, and this user's rights"
    )
    assert "relax the subject's compatibility" in str(refusal_error("r: asking", 409, " (error 409)", "basic.auth"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"name": "ForbiddenException", "error_code": 403}', " (ForbiddenException)"),
        (b'{"name": "ForbiddenException", "error_code": 40301}', " (ForbiddenException, error 40301)"),
        (b'{"name": "a text: with content", "error_code": "403"}', ""),
        (b'["name"]', ""),
        (b"<html>", ""),
        (b"", ""),
    ],
)
def test_a_reason_is_a_name_or_a_number(body: bytes, reason: str) -> None:
    """Whatever an answer has else stays out."""
    assert find_reason(403, body) == reason
