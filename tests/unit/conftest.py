"""What holds for every unit test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connector import redaction
from tests.connectors import Client, TestServer, run_one_sink, serving


@pytest.fixture(autouse=True)
def forget_secrets() -> Iterator[None]:
    """Masks of one test's secrets, which may be ordinary words, are none of the next one's."""
    yield
    redaction._known.forget_all()


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
