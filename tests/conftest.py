"""session -> one broker, one Spark for reading, a workspace per test: what the tests with servers share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import core as hypothesis_core
from hypothesis import settings
from pyspark.sql import SparkSession

from connector.embedded.broker import Broker
from connector.embedded.registry import SchemaRegistry
from connector.embedded.search import SearchNode
from connector.runtime.jars import jars
from connector.runtime.java import java_home
from tests.host import Host
from tests.model import recordings
from tests.reading import Lake
from tests.running import JAVA_OPTIONS, SEED, SHORT_LIVED, Workspace, quick_settings, workspace
from tests.searching import Search
from tests.store import Store
from tests.topics import Topics

MakeWorkspace = Callable[..., Workspace]
OpenLake = Callable[[Workspace], Lake]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, so that two processes end at about the same time."""
    addressed = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if addressed:  # The processes of pytest-xdist then collect different names, and nothing runs.
        raise pytest.UsageError(
            "a test's name holds a memory address; give its parameters ids: " + ", ".join(addressed)
        )
    items.sort(key=lambda item: "kill" not in item.path.name)


# How long one example takes says more of the machine than of the law. The examples of a law are the same in every run,
# until ICEBRIDGE_SEED asks for others: a number, or the word random for one of the clock's, which is printed.
settings.register_profile("laws", deadline=None, derandomize=SEED is None)
settings.load_profile("laws")


def pytest_configure(config: pytest.Config) -> None:
    """Give the laws the seed that was asked for."""
    if SEED is not None:
        hypothesis_core.global_force_seed = SEED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which seed repeats this run."""
    if SEED is not None:
        terminalreporter.write_line(f"ICEBRIDGE_SEED={SEED}")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests; each test has topics of its own."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """A registry with Confluent's API."""
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="session")
def topics(broker: Broker) -> Topics:
    """The tests' client of that broker."""
    return Topics(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def recorded(topics: Topics) -> None:
    """Every recorded JSON topic under its own name, partition by partition as recorded; for tests that only read."""
    cases = [(v, t) for v in recordings.ALL_VARIANTS for t in (*recordings.tables(v), *recordings.OTHERS)]
    topics.replay(r for case in cases for r in recordings.load(*case))


@pytest.fixture(scope="session")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Search]:
    """One OpenSearch node for all tests; each test has indexes of its own."""
    with SearchNode(tmp_path_factory.mktemp("search"), settings={"cluster.max_shards_per_node": "10000"}) as running:
        yield Search(running.url)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One S3 server for all tests; each test has buckets of its own."""
    with Store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session that only reads tables; the sink runs in processes of its own."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.jars": ",".join(str(path) for path in jars("spark")),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        JAVA_OPTIONS: SHORT_LIVED,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    session = SparkSession.builder.master("local[2]").appName("tests").config(map=dict(settings)).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def quick(topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Spark settings for the many starts of the sink: a third less of it is spent on loading and compiling classes.

    One run writes down the classes that it loaded (a JVM's class data archive); the others start from that file. A
    Java that comes without an archive of its own classes cannot make one: then the runs are slower, nothing else.
    """
    topics.replay([attrs.evolve(r, topic="quick.t") for r in recordings.load("json_schema_envelope", "customers")])
    space = workspace(tmp_path_factory.mktemp("quick"), "quick", topics.bootstrap_servers, {"topics": "quick.t"})
    return quick_settings(space)


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A process with Spark in which commands run one after the other."""
    running = Host(tmp_path_factory.mktemp("host"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def make_workspace(
    broker: Broker, host: Host, quick: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> MakeWorkspace:
    """make_workspace(name, {"topics": ..., ...}) gives a workspace; the name is its catalog's and connector's."""

    def make(name: str, extra: dict[str, str]) -> Workspace:
        home: Path = tmp_path_factory.mktemp(name)
        return workspace(home, name, broker.bootstrap_servers, {**quick, **extra}, host)

    return make


@pytest.fixture(scope="session")
def plain_workspace(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> MakeWorkspace:
    """The same for sinks that run in the tests' own Spark session: nothing has to start quickly."""
    return lambda name, extra: workspace(tmp_path_factory.mktemp(name), name, broker.bootstrap_servers, extra)


@pytest.fixture(scope="session")
def lake(spark: SparkSession) -> OpenLake:
    """lake(workspace) opens its tables through Iceberg's own code."""
    return lambda space: Lake(spark, space.name, space.catalog)
