"""HTTPS: certificates, clients that never come to an end of their greeting, logins."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import time
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.applications import Starlette

from connector.errors import ConfigError
from connector.server.http import protocol as http_protocol
from connector.server.http import server as http_server
from connector.server.http.certificate import Certificate
from connector.server.http.server import Address, HttpServer
from connector.server.rest.security import AccessRules
from tests.servers.connectors import TestServer, is_closed, serving


def _certificate(folder: Path, password: bytes | None = None) -> Path:
    """A PEM file with a certificate for 127.0.0.1 and its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
    kind = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, kind)
    path = folder / "server.pem"
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + pem)
    return path


@pytest.mark.parametrize("password", [None, "a password"], ids=["open key", "key with password"])
@pytest.mark.parametrize("login", [None, "me:pass"], ids=["no login", "login"])
def test_https(tmp_path: Path, password: str | None, login: str | None) -> None:
    """Answers by TLS alone, with and without a login, whatever keeps the key."""
    path = _certificate(tmp_path, password.encode() if password else None)
    with serving(AccessRules(user_info=login), Address("127.0.0.1", 0, str(path), password)) as server:
        place = urlsplit(server.rest.url)
        context = ssl.create_default_context(cafile=str(path))
        client = http.client.HTTPSConnection(place.hostname or "", place.port, timeout=20, context=context)
        sent = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"} if login else {}
        client.request("GET", "/connectors", headers=sent)
        answer = client.getresponse()
        assert (answer.status, json.loads(answer.read())) == (200, [])
        client.close()
        plain = http.client.HTTPConnection(place.hostname or "", place.port, timeout=20)
        with pytest.raises((http.client.HTTPException, OSError)):
            plain.request("GET", "/connectors")
            plain.getresponse()
        plain.close()


def test_a_certificate_that_is_renewed_counts_from_the_next_connection_on(tmp_path: Path) -> None:
    """Without a restart; what stands there half written, or is gone, leaves the one before, told once for each file."""

    def told(server: TestServer) -> bytes:
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(_place(server), timeout=20))

    def made(path: Path) -> bytes:
        return x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(serialization.Encoding.DER)

    path = _certificate(tmp_path)
    with serving(address=Address("127.0.0.1", 0, str(path))) as server, structlog.testing.capture_logs() as logs:
        first = made(path)
        assert told(server) == first
        path.write_text("half of a certificate", "utf-8")
        assert [told(server), told(server)] == [first, first]
        assert made(_certificate(tmp_path)) != first
        assert told(server) == made(path)
        path.unlink()
        assert first not in (told(server), told(server))
    assert [one["log_level"] for one in logs if "certificate" in one["event"]] == ["warning", "info", "warning"]


def test_a_renewed_certificate_whose_rights_come_later_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where root writes the file, and hands it over a moment after."""
    path = _certificate(tmp_path)
    held = Certificate(str(path), None)
    before = held.context()
    _certificate(tmp_path)
    with monkeypatch.context() as refused:
        refused.setattr(Certificate, "_load", Mock(side_effect=PermissionError))
        assert [held.context(), held.context()] == [before, before]
        assert Certificate._load.call_count == 1  # type: ignore[attr-defined]
    time.sleep(0.05)  # by which a file system's clock has moved on
    path.chmod(0o640)
    assert held.context() is not before


def _place(server: TestServer) -> tuple[str, int]:
    place = urlsplit(server.rest.url)
    return place.hostname or "", place.port or 0


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a greeting"])
def test_a_client_that_never_agrees_on_tls_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """As one that never sends its request."""
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.2)
    address = Address("127.0.0.1", 0, str(_certificate(tmp_path)))
    with serving(address=address) as server, socket.create_connection(_place(server), 20) as slow:
        slow.sendall(sent)
        assert is_closed(slow)


def test_handshakes_that_never_end_take_nobodys_place(tmp_path: Path) -> None:
    """They count as connections: no more handles are held than there are of these, and others are answered at once."""
    path = _certificate(tmp_path)
    with serving(address=Address("127.0.0.1", 0, str(path))) as server:
        waiting = [socket.create_connection(_place(server), 20) for _ in range(http_server.CONNECTIONS + 20)]
        try:
            for one in waiting[:20]:
                assert is_closed(one)
            context = ssl.create_default_context(cafile=str(path))
            client = http.client.HTTPSConnection(*_place(server), timeout=20, context=context)
            for _ in range(2):
                client.request("GET", "/connectors")
                answer = client.getresponse()
                assert (answer.status, json.loads(answer.read())) == (200, [])
            client.close()
        finally:
            for one in waiting:
                one.close()


def test_a_request_that_comes_with_the_end_of_the_handshake_is_read(tmp_path: Path) -> None:
    """Whoever waits for nothing sends it in the same packet."""
    path = _certificate(tmp_path)
    with serving(address=Address("127.0.0.1", 0, str(path))) as server:
        context = ssl.create_default_context(cafile=str(path))
        coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(coming, going, server_hostname="127.0.0.1")
        with socket.create_connection(_place(server), 20) as client:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    client.sendall(going.read())
                    coming.write(client.recv(65536))
            tls.write(b"GET /connectors HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            client.sendall(going.read())
            said = b""
            while b"[]" not in said:
                try:
                    said += tls.read(65536)
                except ssl.SSLWantReadError:  # all that came is read
                    coming.write(client.recv(65536))
            assert said.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("given", ["none", "certificate alone", "no password", "another password"])
def test_a_certificate_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path, given: str) -> None:
    """It is named, and nobody is asked for a password."""
    path = _certificate(tmp_path, b"a password")
    if given == "certificate alone":
        path.write_text(path.read_text().partition("-----BEGIN ENCRYPTED")[0])
    name = "missing.pem" if given == "none" else path.name
    password = "other" if given == "another password" else None
    with pytest.raises(ConfigError, match=r"listeners\.https\.ssl\.keystore\.location: no certificate with its key"):
        HttpServer(Starlette(), Address("127.0.0.1", 0, str(tmp_path / name), password))


def test_a_login_is_asked_for_everywhere_but_on_the_health_port() -> None:
    """No path of the listeners answers without it, known or not."""
    with serving(AccessRules(user_info="me:pass")) as server:
        paths = [
            *("/", "/connectors", "/connectors/x/status", "/connector-plugins", "/admin/loggers", "/metrics"),
            *("/q/health", "/api/overview", "/api/signals", "/health", "/nothing"),
        ]
        assert {path: server.rest.call("GET", path).status for path in paths} == dict.fromkeys(paths, 401)
