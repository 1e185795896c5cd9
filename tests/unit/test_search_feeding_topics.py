"""Where several topics or partitions feed one document."""

from __future__ import annotations

import attrs
import pyarrow as pa
import pytest

from connector.errors import FatalError
from connector.opensearch.bulk.actions import WriteOptions
from connector.sink.destinations.opensearch.feeding_topics import check_feeding_topics
from connector.sink.destinations.opensearch.write.document_requests import IndexTarget, VersionSource
from connector.sink.model.plan import BatchPlan
from tests.unit.sink_plans import plan, upsert

pytestmark = pytest.mark.unit

TABLE = upsert(0, {"id": pa.int64(), "v": pa.string()}, ("id",), partitions={"a": 1})
ONE = plan(TABLE, routes={"a": 0}, ranks={("a", 0): 0})


def _check(batch: BatchPlan, *, versions: VersionSource = "source", partial: bool = False) -> None:
    target = IndexTarget(WriteOptions("i", partial), versions)
    check_feeding_topics(batch, ["i"], {batch.tables[0].layout.name: target})


def test_a_topic_that_got_partitions_stops_where_versions_are_offsets() -> None:
    """A key that moved counts from 0 there; times as versions go on, and so do events that are only added."""
    grown = attrs.evolve(ONE, ranks={("a", 0): 0, ("a", 1): 1})
    _check(ONE, versions="offset")
    _check(grown)
    _check(attrs.evolve(grown, tables=(attrs.evolve(TABLE, upsert=False),)), versions="offset")
    with pytest.raises(FatalError, match=r"topic a got partitions.*--to stored"):
        _check(grown, versions="offset")


def test_topics_that_set_fields_of_one_document_stop() -> None:
    """An event has nulls for what only another topic has; whole documents replace one another anyway."""
    both = attrs.evolve(ONE, routes={"a": 0, "b": 0})
    _check(ONE, partial=True)
    _check(both)
    with pytest.raises(FatalError, match="topics a, b all feed it"):
        _check(both, partial=True)
