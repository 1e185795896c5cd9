"""an empty folder -> an authority, a server and a client that it vouches for, and an authority nobody knows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

HOST = "localhost"


@frozen
class Certificates:
    """Files: two authorities (PEM), and the stores of server and client (PKCS12, `password`)."""

    authority: Path
    other_authority: Path
    server_store: Path
    client_store: Path
    password: str = "of the store"

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Make all of them."""
        folder.mkdir(parents=True)
        made = cls(*(folder / name for name in ("authority.pem", "other.pem", "server.p12", "client.p12")))
        keys = {name: _key() for name in ("authority", "other", "server", "client")}
        roots = {name: _certificate(name, keys[name], name, keys[name]) for name in ("authority", "other")}
        made.authority.write_bytes(roots["authority"].public_bytes(Encoding.PEM))
        made.other_authority.write_bytes(roots["other"].public_bytes(Encoding.PEM))
        for name, path in (("server", made.server_store), ("client", made.client_store)):
            own = _certificate(name, keys[name], "authority", keys["authority"])
            path.write_bytes(_store(made.password, roots["authority"], name, keys[name], own))
        return made


@frozen
class CertificateChain:
    """Files (PEM): a root, an authority that it vouches for, and a server of that one, as servers show it.

    `own` is the server's certificate alone; `store` a truststore (PKCS12, `password`) with the authority in the middle.
    """

    root: Path
    middle: Path
    own: Path
    shown: Path
    store: Path
    password: str = "of the store"

    @classmethod
    def make(cls, folder: Path) -> Self:
        """Make all of them."""
        made = cls(*(folder / name for name in ("root.pem", "middle.pem", "own.pem", "shown.pem", "middle.p12")))
        root, middle, server = (_key() for _ in range(3))
        certificates = (
            _certificate("root", root, "root", root),
            _certificate("middle", middle, "root", root, authority=True),
            _certificate("server", server, "middle", middle),
        )
        texts = [one.public_bytes(Encoding.PEM) for one in certificates]
        for path, text in zip((made.root, made.middle, made.own), texts, strict=True):
            path.write_bytes(text)
        key = server.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        made.shown.write_bytes(texts[2] + texts[1] + key)
        made.store.write_bytes(_store(made.password, certificates[1]))
        return made


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _store(
    password: str,
    trusted: x509.Certificate,
    name: str | None = None,
    key: ec.EllipticCurvePrivateKey | None = None,
    own: x509.Certificate | None = None,
) -> bytes:
    """A store (PKCS12) of who is trusted, and of its owner where there is one."""
    locked = BestAvailableEncryption(password.encode())
    return serialize_key_and_certificates(None if name is None else name.encode(), key, own, [trusted], locked)


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    root = name == issuer or authority
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (name, issuer)]
    builder = x509.CertificateBuilder().subject_name(names[0]).issuer_name(names[1]).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=1))
    builder = builder.not_valid_after(now + timedelta(days=7))
    builder = builder.add_extension(x509.BasicConstraints(ca=root, path_length=None), critical=True)
    usage = x509.KeyUsage(True, False, False, False, False, root, root, False, False)
    builder = builder.add_extension(usage, critical=True)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(signer, critical=False)
    if not root:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
