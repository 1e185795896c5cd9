"""What holds for every unit test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connector import redaction
from connector.kafka.consumer.librdkafka_consumers import forget_consumers
from tests.servers.connectors import Client, TestServer, run_one_sink, serving


@pytest.fixture(autouse=True)
def forget_secrets() -> Iterator[None]:
    """Masks of one test's secrets, which may be ordinary words, are none of the next one's."""
    yield
    redaction._known.forget_all()


@pytest.fixture(autouse=True)
def end_consumers() -> Iterator[None]:
    """A consumer of librdkafka that outlives its test asks for its broker on: a double that has come to the same port.

    librdkafka aborts the process on answers that it does not expect.
    """
    yield
    forget_consumers()


@pytest.fixture
def server() -> Iterator[TestServer]:
    """A server without connectors."""
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def empty() -> Iterator[TestServer]:
    """A server for tests that create no connector."""
    with serving() as running:
        yield running


@pytest.fixture
def rest(server: TestServer) -> Client:
    """A client of a server with one sink that runs."""
    return run_one_sink(server)
