"""Documents that a truncate takes, in an index in memory that keeps OpenSearch's rules for external versions."""

from __future__ import annotations

from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.bulk.delete_older import OlderDocuments, delete_older
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from tests.simulation.interruptions import Interruptions
from tests.simulation.search_cluster import CLUSTERS, SearchCluster, search_in_memory

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
