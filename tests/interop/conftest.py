"""session -> one PostgreSQL cluster and one Connect worker beside the tests' broker; a function that replicates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import pytest

from tests.clients.topics import Topics
from tests.interop.connect import Connect
from tests.interop.jdbc_sink import jdbc_sink, table_of
from tests.interop.postgres import Postgres
from tests.servers.shared import SharedBroker

Replicate = Callable[..., dict[str, str]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for all tests; each test has tables of its own."""
    with Postgres() as running:
        yield running


@pytest.fixture(scope="session")
def connect(broker: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    """One Connect worker for all tests; each test has connectors of its own."""
    with Connect(tmp_path_factory.mktemp("connect"), broker.bootstrap_servers) as running:
        yield running


@pytest.fixture(scope="session")
def replicate(connect: Connect, postgres: Postgres, topics: Topics) -> Replicate:
    """replicate(name, its topics, extra) has a sink connector take all that the topics hold; topic -> its table.

    Called again with the same name it goes on where it was: the offsets stay in the connector's group.
    """

    def run(name: str, sources: Collection[str], extra: Mapping[str, str] | None = None) -> dict[str, str]:
        connect.create(name, jdbc_sink(name, postgres, sources, extra))
        try:
            connect.wait_consumed(name, (record for source in sources for record in topics.read(source)))
        finally:
            connect.delete(name)
        return {source: table_of(name, source) for source in sources}

    return run
