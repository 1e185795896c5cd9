"""Refusals of registries -> errors that say what to do, by their status, name and code; no text of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from connector.errors import FatalError, RetriableError
from connector.kafka.registry import known_schemas
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


class _Unregistered(BaseHTTPRequestHandler):
    """Has a configuration where it is a registry, and no schemas."""

    status, code = 200, 404

    def do_GET(self) -> None:
        body = json.dumps({"compatibilityLevel": "BACKWARD"} if self.path == "/config" else {"error_code": self.code})
        self.send_response(self.status if self.path == "/config" else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())


@pytest.mark.parametrize(("status", "code"), [(200, 404), (403, 404), (404, 40403)])
def test_a_schema_is_missing_where_there_is_a_registry(monkeypatch: pytest.MonkeyPatch, status: int, code: int) -> None:
    """That it is one is told by its own code, or by its configuration, whether this user may read that or not."""
    monkeypatch.setattr(_Unregistered, "status", status)
    monkeypatch.setattr(_Unregistered, "code", code)
    with serve_http(_Unregistered) as url, pytest.raises(UnknownSchema):
        SchemaRegistry(RegistrySettings((("url", url),))).fetch_schema(1, "AVRO")


def test_a_schema_is_not_missing_where_there_is_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands before a registry answers with 404 while that starts, and so does a server that is none."""
    monkeypatch.setattr(_Unregistered, "status", 404)
    with serve_http(_Unregistered) as url, pytest.raises(RetriableError, match="nothing is there; check its URL"):
        SchemaRegistry(RegistrySettings((("url", url),))).fetch_schema(1, "AVRO")


class _OtherType(BaseHTTPRequestHandler):
    """Has one schema, of Protobuf, and nothing else: what stands before a registry lets schemas through alone."""

    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path.partition("?")[0])
        body = json.dumps({"schemaType": "PROTOBUF", "schema": "message A {}"}).encode()
        self.send_response(200 if self.path.startswith("/schemas/ids/7") else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_an_absence_that_needs_no_registry_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that is too great, as of a broken message, costs no request; a schema of another type is a registry's."""
    monkeypatch.setattr(known_schemas, "_SECOND_LOOK_S", 0.0)
    with serve_http(_OtherType) as url:
        registry = SchemaRegistry(RegistrySettings((("url", url),)))
        with pytest.raises(UnknownSchema, match="no registry has ids as great"):
            registry.fetch_schema(2**31, "AVRO")
        assert not _OtherType.asked
        with pytest.raises(UnknownSchema, match="type PROTOBUF there, not Avro"):
            registry.fetch_schema(7, "AVRO")
        assert set(_OtherType.asked) == {"/schemas/ids/7"}


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
