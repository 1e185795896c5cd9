"""The messages of SCRAM logins, by the example of RFC 7677."""

from __future__ import annotations

import pytest

from connector.kafka.brokers.sasl import LoginRefused, start_exchange

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def test_a_login_says_what_the_standard_says() -> None:
    """User, nonce and proof are those of the standard's example, and the server's proof is believed."""
    talk = start_exchange("SCRAM-SHA-256", {"sasl.username": "user", "sasl.password": "pencil"}, NONCE)
    assert next(talk) == b"n,,n=user,r=" + NONCE.encode()
    last = talk.send(SERVER_FIRST)
    assert last == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        talk.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("answer", [b"v=AAAA", b"e=invalid-proof"])
def test_a_server_without_proof_is_refused(answer: bytes) -> None:
    """A server that does not show that it knows the password is none of ours."""
    talk = start_exchange("SCRAM-SHA-256", {"sasl.username": "user", "sasl.password": "pencil"}, NONCE)
    next(talk)
    talk.send(SERVER_FIRST)
    with pytest.raises(LoginRefused):
        talk.send(answer)


def test_the_servers_nonce_begins_with_ours() -> None:
    """An answer to somebody else's login is refused."""
    talk = start_exchange("SCRAM-SHA-512", {"sasl.username": "a,b=c", "sasl.password": "x"}, NONCE)
    assert next(talk) == b"n,,n=a=2Cb=3Dc,r=" + NONCE.encode()
    with pytest.raises(LoginRefused, match="another"):
        talk.send(b"r=other,s=AAAA,i=4096")
