"""Documents that a truncate takes, in an index in memory that keeps OpenSearch's rules for external versions."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from opensearchpy.exceptions import NotFoundError

from connector.errors import RetriableError
from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.bulk.delete_older import OlderDocuments, delete_older
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from tests.simulation.interruptions import Interruptions
from tests.simulation.search_cluster import CLUSTERS, SearchClient, SearchCluster, search_in_memory

CONNECTION = ConnectionSettings(("http://delete-older.invalid",))
DOCUMENTS = {"a": (3, "one"), "b": (7, "one"), "c": (9, "other"), "d": (12, "one")}
"""Their versions, and what they say of their source."""


def _delete(older: OlderDocuments, slices: int = 1, style: WriteOptions | None = None) -> tuple[int, SearchCluster]:
    cluster = SearchCluster()
    cluster.create("i", {})
    index = cluster.find("i")
    index.documents = {one: (version, {"db": name}) for one, (version, name) in DOCUMENTS.items()}
    CLUSTERS[CONNECTION.urls[0]] = cluster, Interruptions()
    with search_in_memory():
        count = sum(
            delete_older(CONNECTION, BulkSettings(), style or WriteOptions("i"), older, place, slices)
            for place in range(slices)
        )
    return count, cluster


def test_documents_up_to_a_version_go() -> None:
    """The one of that version too; what was deleted has its document's version where that is greater."""
    for slices in (1, 3):
        count, cluster = _delete(OlderDocuments(version=8, most=9), slices)
        index = cluster.find("i")
        assert (count, sorted(index.documents)) == (3, ["d"])
        assert index.gone == {"a": 8, "b": 8, "c": 9}


def test_only_documents_of_a_source_go() -> None:
    """Those whose columns have its texts, under the name that the columns have in the index."""
    count, cluster = _delete(OlderDocuments(8, 9, {"db": "one"}))
    assert (count, sorted(cluster.find("i").documents)) == (2, ["c", "d"])
    named = WriteOptions("i", fields={"database": "db"})
    count, cluster = _delete(OlderDocuments(8, 9, {"database": "other"}), style=named)
    assert (count, sorted(cluster.find("i").documents)) == (1, ["a", "b", "d"])


@pytest.mark.parametrize("call", ["search", "scroll"])
@pytest.mark.parametrize("lack", [{"_shards": {"total": 2, "successful": 1, "failed": 0}}, {"timed_out": True}])
def test_a_page_that_lacks_a_shard_is_not_the_end(monkeypatch: pytest.MonkeyPatch, call: str, lack: Any) -> None:
    """A node that is away answers nothing, and searches show what the others have: its documents would stay."""
    whole = getattr(SearchClient, call)
    monkeypatch.setattr(SearchClient, call, lambda *told, **more: {**whole(*told, **more), **lack})
    with pytest.raises(RetriableError, match=r"emptying index i.*not all"):
        _delete(OlderDocuments(version=8, most=9))


def test_a_search_that_a_node_forgot_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that starts again knows none of the searches that were under way: the truncate is done once more."""

    def forgotten(*_: object, **__: object) -> None:
        raise NotFoundError(404, "search_phase_execution_exception", {})

    monkeypatch.setattr(SearchClient, "scroll", forgotten)
    with pytest.raises(RetriableError, match=r"emptying index i.*forgot"):
        _delete(OlderDocuments(version=8, most=9))


@pytest.mark.parametrize("lack", [{}, {"timed_out": True}])
def test_a_search_is_closed_whatever_becomes_of_it(monkeypatch: pytest.MonkeyPatch, lack: Any) -> None:
    """A node keeps some hundreds of searches for minutes, and a batch that is tried again opens as many once more."""
    whole, closed = SearchClient.search, list[Any]()
    monkeypatch.setattr(SearchClient, "search", lambda *told, **more: {**whole(*told, **more), **lack})
    monkeypatch.setattr(SearchClient, "clear_scroll", lambda _, body, **__: closed.append(body["scroll_id"]))
    with pytest.raises(RetriableError) if lack else nullcontext():
        _delete(OlderDocuments(version=8, most=9))
    assert closed == [["s"]]
