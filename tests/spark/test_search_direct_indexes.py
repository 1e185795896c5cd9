"""Iceberg tables -> indexes with no Kafka between, on a real node, that refuse, go, or are made anew meanwhile."""

from __future__ import annotations

import json
import signal
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark.sql import SparkSession

from connector.cli.reindex import reindex_tables
from connector.errors import FatalError, GapError
from connector.opensearch.indexes.index_admin import IndexAdmin, IndexInfo
from connector.runtime.stop_signals import leave_on_signals
from connector.settings.source.settings import load_source
from connector.source.destinations.opensearch import OpenSearchPublisher
from connector.source.factory import build_source
from tests.clients.search import Search
from tests.harness.tiers import tiered
from tests.runs.direct import Direct, index_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CATALOG = "indexes"


@pytest.fixture(scope="module")
def direct(spark: SparkSession, search: Search, tmp_path_factory: pytest.TempPathFactory) -> Direct:
    """A catalog for these tests."""
    return Direct.open(spark, tmp_path_factory.mktemp("indexes"), search, CATALOG)


def test_nothing_moves_on_before_every_document_is_settled(direct: Direct) -> None:
    """An index that refuses documents stops the table at its snapshot; once it takes them the
    same changes come again, and the end is right."""
    table = direct.create("refused", "id BIGINT NOT NULL, v STRING")
    direct.search.ask("PUT", index_of(table), {"mappings": {"properties": {"v": {"type": "long"}}}})
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'no number'), (2, '3')")
    with pytest.raises(FatalError, match="refuses 1 documents"):
        direct.run(table)
    direct.search.ask("DELETE", index_of(table))
    direct.run(table)
    assert sorted(direct.search.documents(index_of(table))) == ["1", "2"]


def test_reindex_swaps_a_fresh_index_in_and_changes_follow(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    """`icebridge reindex` loads a fresh index, swaps it in in one step, and changes go on from its snapshot."""
    from connector.cli import reindex

    table = direct.create("rebuilt", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b')")
    direct.run(table)
    direct.search.ask("POST", f"{index}/_doc/stranger", {"v": "not of the table"})
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE id = 1")
    monkeypatch.setattr(reindex, "open_session", lambda _: nullcontext(direct.spark))
    reindex_tables(direct.settings(table))
    assert sorted(direct.search.documents(index)) == ["2"]
    behind = list(direct.search.ask("GET", f"_alias/{index}"))
    assert len(behind) == 1 and behind[0].startswith(f"{index}-")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'c')")
    assert [step.kind for step in direct.run(table)] == ["snapshot published"]
    assert sorted(direct.search.documents(index)) == ["2", "3"]


@pytest.mark.parametrize("moment", ["publish", "swap"])
def test_a_reindex_that_is_stopped_leaves_one_index(
    direct: Direct, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A signal ends the load, and what was loaded is deleted; one that comes with the swap lets it end, position and
    all."""
    from connector.cli import reindex

    table = direct.create(f"stopped_{moment}", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b')")
    direct.run(table)
    direct.search.ask("POST", f"{index}/_doc/stranger", {"v": "not of the table"})
    monkeypatch.setattr(reindex, "open_session", lambda _: nullcontext(direct.spark))
    kind, name = {"publish": (OpenSearchPublisher, "publish"), "swap": (IndexAdmin, "swap_alias")}[moment]
    usual = getattr(kind, name)

    def stop(*arguments: Any) -> Any:
        done = usual(*arguments)
        signal.raise_signal(signal.SIGTERM)
        return done

    with monkeypatch.context() as stopping:
        stopping.setattr(kind, name, stop)
        with pytest.raises(SystemExit) as ended, leave_on_signals(resumes=False):
            reindex_tables(direct.settings(table))
            raise SystemExit(0)
    assert ended.value.code == (143 if moment == "publish" else 0)
    behind = list(direct.search.ask("GET", f"{index}*"))
    assert behind == [index] if moment == "publish" else len(behind) == 1 and behind != [index]
    assert ("stranger" in direct.search.documents(index)) == (moment == "publish")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'c')")
    assert [step.kind for step in direct.run(table)] == ["snapshot published"]
    assert sorted(set(direct.search.documents(index)) - {"stranger"}) == ["1", "2", "3"]


def test_an_alias_that_is_rolled_over_stays_equal_to_the_table(direct: Direct) -> None:
    """Updates and deletes of a table find their documents in older indexes behind the alias, each once."""
    table = direct.create("turned", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.search.ask("PUT", f"{index}-000001", {"aliases": {index: {"is_write_index": True}}})
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    direct.run(table)
    direct.search.ask("POST", f"{index}/_rollover")
    direct.spark.sql(f"UPDATE {CATALOG}.{table} SET v = 'B' WHERE id = 2")
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE id = 3")
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (4, 'd')")
    direct.run(table)
    found = {name: direct.search.documents(f"{index}-{name}") for name in ("000001", "000002")}
    ends = {name: {i: d["v"] for i, d in documents.items()} for name, documents in found.items()}
    assert ends == {"000001": {"1": "a", "2": "B"}, "000002": {"4": "d"}}


def test_an_index_that_is_deleted_stops_the_table(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deleted between two snapshots, in one run or between two, made again by OpenSearch or not: a clear stop, and no
    index of later changes alone. `icebridge reindex` fills it, and changes follow."""
    from connector.cli import reindex

    table = direct.create("deleted", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b')")
    feed = direct.feed(table)
    while feed.step(pinned=True):
        pass
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'c')")
    direct.search.ask("DELETE", index)
    for step in (lambda: feed.step(pinned=False), lambda: direct.run(table)):
        with pytest.raises(GapError, match=rf"table {table}: index {index} is gone.*icebridge reindex"):
            step()
    assert not direct.search.exists(index)
    direct.search.ask("PUT", f"{index}/_doc/9", {"id": 9})
    with pytest.raises(GapError, match=rf"table {table}: index {index} was deleted and made again"):
        direct.run(table)
    assert list(direct.search.documents(index)) == ["9"], "nobody's documents are touched"
    monkeypatch.setattr(reindex, "open_session", lambda _: nullcontext(direct.spark))
    reindex_tables(direct.settings(table))
    direct.spark.sql(f"DELETE FROM {CATALOG}.{table} WHERE id = 1")
    direct.run(table)
    assert sorted(direct.search.documents(index)) == ["2", "3"]


def test_an_index_that_is_deleted_while_documents_are_sent_stops_the_table(
    direct: Direct, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What OpenSearch makes for documents that were under way is seen before the position moves."""
    table = direct.create("undermined", "id BIGINT NOT NULL, v STRING")
    index = index_of(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, 'a'), (2, 'b')")
    direct.run(table)
    direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (3, 'c')")
    confirm = IndexAdmin.confirm_indexes

    def undermined(own: IndexAdmin, known: IndexInfo) -> IndexInfo:
        direct.search.ask("DELETE", index)
        direct.search.ask("PUT", f"{index}/_doc/3", {"id": 3})
        return confirm(own, known)

    monkeypatch.setattr(IndexAdmin, "confirm_indexes", undermined)
    with pytest.raises(GapError, match=rf"index {index} was deleted and made again"):
        direct.run(table)
    monkeypatch.undo()
    with pytest.raises(GapError, match=rf"table {table}: index {index}"):
        direct.run(table)


def test_two_tables_whose_names_differ_by_capitals(direct: Direct) -> None:
    """Their index would be one: the second is refused beside the first, and by itself, with both names."""
    tables = [direct.create(name, "id BIGINT NOT NULL, v STRING") for name in ("Twin", "twin")]
    for table in tables:
        direct.spark.sql(f"INSERT INTO {CATALOG}.{table} VALUES (1, '{table}')")
    settings = load_source([direct.file("twins", tables)], environ={})
    with pytest.raises(FatalError, match=r"table db\.twin: its index lake\.db\.twin is also that of table db\.Twin"):
        build_source(direct.spark, settings).run(once=True)
    with pytest.raises(FatalError, match=r"has the documents of lake\.db\.Twin, and lake\.db\.twin maps to the same"):
        direct.run("db.twin")
    assert direct.search.documents("lake.db.twin") == {"1": {"id": 1, "v": "db.Twin"}}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", tiered(["incremental", "blocking"], ["incremental"]))
def test_a_signal_reads_a_table_into_its_index_again(direct: Direct, kind: str) -> None:
    """Documents that were lost come back, changed and deleted rows stay as they are, also where no key was read yet."""
    table = direct.create(f"again_{kind}", "id BIGINT NOT NULL, v STRING")
    signals = direct.home / f"{kind}.txt"
    extra = {"signal.enabled.channels": "file", "signal.file": str(signals), "incremental.snapshot.chunk.size": "1"}
    name = f"{CATALOG}.{table}"
    direct.spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    direct.spark.sql(f"INSERT INTO {name} VALUES (3, 'c'), (4, 'd')")
    direct.run(table, extra)
    direct.search.ask("DELETE", f"{index_of(table)}/_doc/1?refresh=true")
    direct.spark.sql(f"UPDATE {name} SET v = 'B' WHERE id = 2")
    direct.spark.sql(f"DELETE FROM {name} WHERE id = 3")
    direct.run(table, extra)
    assert sorted(direct.search.documents(index_of(table))) == ["2", "4"]
    data = {"data-collections": [table], "type": kind}
    signals.write_text(json.dumps({"id": kind, "type": "execute-snapshot", "data": data}) + "\n")
    steps = direct.run(table, extra)
    assert {step.kind for step in steps} == {"chunk read"}
    found = {i: document["v"] for i, document in direct.search.documents(index_of(table)).items()}
    assert found == {"1": "a", "2": "B", "4": "d"}
    assert direct.run(table, extra) == []
