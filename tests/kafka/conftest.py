"""What several modules with brokers of their own share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.cluster import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made
