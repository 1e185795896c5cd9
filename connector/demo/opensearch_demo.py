"""What the source published -> documents of an OpenSearch node of the demo's own, and a search over them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pyspark.sql import Row, SparkSession
from rich.console import Console

from connector.demo.printing import make_grid
from connector.demo.servers.opensearch_node import OpenSearchNode
from connector.demo.source_demo import REPORT, TABLES
from connector.errors import FatalError
from connector.opensearch.client import map_opensearch_errors, opensearch_client
from connector.settings import load
from connector.settings.opensearch.connection import ConnectionSettings
from connector.sink.factory import build_sink

HITS = 5
_SHOWN = ("name", "price", "sold")
"""Fields of a document that fit a narrow terminal."""
_SINK = """\
# The demo's third sink: what the source published, as documents of indexes lake.shop.*.
name=icebridge-demo-search
bootstrap.servers={servers}
topics={topics}
debezium.sink.type=opensearch
connection.url={url}
debezium.sink.iceberg.warehouse={warehouse}
debezium.sink.iceberg.table-namespace=demo
"""


def search_documents(console: Console, spark: SparkSession, home: Path, servers: str) -> None:
    """Bring the topics into indexes, prove that each has a document for every row, and search.

    Raises:
        FatalError: an index is not its table.
    """
    topics = [f"lake.shop.{table}" for table in TABLES]
    with OpenSearchNode(home / "search") as node:
        path = home / "search-sink.properties"
        values = {"servers": servers, "warehouse": home / "warehouse", "topics": ",".join(topics), "url": node.url}
        path.write_text(_SINK.format(**values), encoding="utf-8")
        with closing(build_sink(spark, load([path]))) as sink:
            sink.stream.run(once=True)
        console.print(f"[bold]the same tables, searched[/] on an OpenSearch node at {node.url}")
        for table, topic in zip(TABLES, topics, strict=True):
            _compare_documents(spark, node, table, topic)
        _show(console, node, ",".join(topics))


def _compare_documents(spark: SparkSession, node: OpenSearchNode, table: str, index: str) -> None:
    with map_opensearch_errors(f"reading index {index}"):
        asking = opensearch_client(ConnectionSettings((node.url,)))
        asking.indices.refresh(index=index)
        hits = asking.search(index=index, size=10_000, body={"query": {"match_all": {}}})["hits"]["hits"]
    rows = {str(row.id): (row.name, None if row.price is None else str(row.price)) for row in _rows(spark, table)}
    if {hit["_id"]: (hit["_source"]["name"], hit["_source"]["price"]) for hit in hits} != rows:
        raise FatalError(f"the demo's index {index} is not equal to shop.{table}; {REPORT}")


def _rows(spark: SparkSession, table: str) -> list[Row]:
    return list(spark.table(f"default.shop.{table}").select("id", "name", "price").collect())


def _show(console: Console, node: OpenSearchNode, indexes: str) -> None:
    query = {"query": {"bool": {"must": [{"match": {"name": "thing"}}, {"range": {"id": {"gte": 10}}}]}}}
    with map_opensearch_errors("searching"):
        answer = opensearch_client(ConnectionSettings((node.url,))).search(index=indexes, size=HITS, body=query)
    hits = answer["hits"]
    title = f"name matches thing, id from 10 on: {hits['total']['value']} hits"
    grid = make_grid("index", "_id", *_SHOWN, title=title)
    for hit in hits["hits"]:
        grid.add_row(hit["_index"], hit["_id"], *(str(hit["_source"].get(name)) for name in _SHOWN))
    console.print(grid)
