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


@pytest.mark.parametrize("rounds", [-1, 0, 1, 4095, 1_000_001])
def test_a_server_that_asks_for_too_few_rounds_is_refused(rounds: int) -> None:
    """Whoever poses as the broker could try passwords quickly by the proof (RFC 7677): at least 4096, as in Java."""
    talk = start_exchange("SCRAM-SHA-256", {"sasl.username": "user", "sasl.password": "pencil"}, NONCE)
    next(talk)
    with pytest.raises(LoginRefused, match=f"asks for {rounds} rounds of hashing; 4096 to 1000000 are done"):
        talk.send(SERVER_FIRST.replace(b"i=4096", b"i=%d" % rounds))


def test_an_extension_that_has_to_be_known_ends_the_login() -> None:
    """RFC 5802 keeps `m` for what a client may not pass over."""
    talk = start_exchange("SCRAM-SHA-256", {"sasl.username": "user", "sasl.password": "pencil"}, NONCE)
    next(talk)
    with pytest.raises(LoginRefused, match="an extension"):
        talk.send(b"m=new," + SERVER_FIRST)


def test_a_servers_reason_is_told() -> None:
    """The error that a server names in place of its first or last message."""
    for before, said in ((b"", b"e=unknown-user"), (SERVER_FIRST, b"e=invalid-proof")):
        talk = start_exchange("SCRAM-SHA-256", {"sasl.username": "user", "sasl.password": "pencil"}, NONCE)
        next(talk)
        if before:
            talk.send(before)
        with pytest.raises(LoginRefused, match=f"the server says: {said[2:].decode()}"):
            talk.send(said)
