"""A cluster that has just started, and knows no index yet -> another try; one that lost an index -> a stop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from opensearchpy.exceptions import TransportError

from connector.errors import FatalError, GapError, RetriableError
from connector.opensearch.indexes.index_admin import IndexAdmin
from tests.harness.search_settings import load_search_settings
from tests.simulation.interruptions import Interruptions
from tests.simulation.search_cluster import CLUSTERS, SearchClient, SearchCluster, search_in_memory

pytestmark = pytest.mark.unit

URL = "http://starting:9200"


@pytest.fixture
def cluster() -> Iterator[SearchCluster]:
    """A cluster in memory, that the client of `URL` asks."""
    made = SearchCluster()
    CLUSTERS[URL] = made, Interruptions()
    with search_in_memory():
        yield made
    del CLUSTERS[URL]


@pytest.fixture
def indexes(cluster: SearchCluster, tmp_path: Path) -> IndexAdmin:
    """Its indexes, as the sink sees them."""
    return IndexAdmin(load_search_settings(tmp_path, URL))


@pytest.mark.parametrize("requests", [2, 3])
def test_a_cluster_that_starts_has_lost_no_index(cluster: SearchCluster, indexes: IndexAdmin, requests: int) -> None:
    """As long as the cluster has not read its state, an index that it does not name is neither lost nor new."""
    index = indexes.create("orders", {}, {})
    for look_up in (lambda: indexes.current(index), lambda: indexes.find("orders"), lambda: indexes.find("others")):
        cluster.starting = requests
        with pytest.raises(RetriableError, match=r"looking (orders|others) up: OpenSearch is busy"):
            look_up()
    cluster.starting = 0
    assert indexes.current(index) == index
    assert indexes.find("others") is None


def test_a_cluster_that_reads_its_state_meanwhile_is_asked_again(cluster: SearchCluster, indexes: IndexAdmin) -> None:
    """The answer that there is no index counts only if it was given when the state had been read."""
    index = indexes.create("orders", {}, {})
    cluster.starting = 1
    assert indexes.current(index) == index
    cluster.starting = 1
    assert indexes.find("orders") == index


def test_a_deleted_index_is_a_gap(cluster: SearchCluster, indexes: IndexAdmin) -> None:
    """An index that a cluster which has read its state does not have is gone."""
    index = indexes.create("orders", {}, {})
    del cluster.indexes["orders"]
    with pytest.raises(GapError, match="index orders is gone"):
        indexes.current(index)


@pytest.mark.parametrize("status", [400, 403, 404, 405])
def test_who_may_not_look_documents_up_finds_indexes(
    indexes: IndexAdmin, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A user who may only write, or a proxy that lets some requests through, does not keep a new index away."""
    refusal = TransportError(status, "index_not_found_exception", {})
    monkeypatch.setattr(SearchClient, "mget", Mock(side_effect=refusal))
    assert indexes.find("orders") is None
    created = indexes.create("orders", {}, {})
    assert indexes.find("orders") == created


def test_a_login_that_ends_meanwhile_is_a_stop(indexes: IndexAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the cluster has read its state nobody has said then."""
    monkeypatch.setattr(SearchClient, "mget", Mock(side_effect=TransportError(401, "security_exception", {})))
    with pytest.raises(FatalError, match="refuses the login"):
        indexes.find("orders")
