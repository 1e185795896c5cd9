"""A catalog in PostgreSQL, an index -> rows, by Spark and by the tests' own client, not by the product's code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.stop_signals import keep_handlers
from tests.chaos.connectors import Connector, catalog_properties
from tests.chaos.sent import identify
from tests.chaos.tables import TABLES, Key, Table
from tests.clients.lake import Lake
from tests.clients.reading_spark import start_reading_spark
from tests.clients.search import Search

Row = dict[str, Any]


@contextmanager
def open_reader(home: Path, port: int, quick: dict[str, str]) -> Iterator[Reader]:
    """A Spark session that reads tables, in this process; PostgreSQL is at a port that no relay cuts."""
    settings = {
        **quick,
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.local.dir": str(home / "spark"),
    }
    with keep_handlers():
        session = start_reading_spark("chaos", 1, settings, (*fetch_jars("spark"), *fetch_jars("postgresql")))
    try:
        yield Reader(session, home, port)
    finally:
        # By a thread with its own connection: a signal may have cut off a call on ours.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(session.stop).result()


class Reader:
    """Reads what connectors have written."""

    def __init__(self, spark: SparkSession, home: Path, port: int) -> None:
        """Read through a session, from the warehouse in `home`."""
        self._spark, self._home, self._port = spark, home, port

    def rows(self, connector: Connector, table: Table) -> list[Row]:
        """The rows of a table as it is now."""
        # A session of its own: the catalogs of one hold connections to a server that has been killed since.
        name = connector.name
        lake = Lake(self._spark.newSession(), name, catalog_properties(self._home, name, self._port))
        found = connector.table(table.name)
        try:
            there = lake.names()
        except PySparkException:  # nor is there a namespace yet
            return []
        return lake.many(found) if found in there else []

    def events(self, connector: Connector) -> Counter[Key]:
        """Every event of an append-only connector's tables."""
        return Counter(
            identify(table, row, row["__source_lsn"], row["__op"])
            for table in TABLES
            for row in self.rows(connector, table)
        )


def split_marked(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows that live, and those that are marked deleted."""
    is_marked = [str(row.get("__deleted")).lower() == "true" for row in rows]
    sides = ([row for row, mark in zip(rows, is_marked, strict=True) if mark is wanted] for wanted in (False, True))
    live, marked = sides
    return live, marked


def read_documents(url: str, index: str) -> list[Row]:
    """The documents of an index, with the values that their texts stand for; none where there is no index."""
    search = Search(url)
    return search.rows(index) if search.exists(index) else []
