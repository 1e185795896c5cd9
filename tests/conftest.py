"""session -> one broker, one Spark for reading, a workspace per test: what the tests with servers share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import core as hypothesis_core
from hypothesis import settings
from pyspark.sql import SparkSession

from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.java_names import remember_java_names
from connector.runtime.spark.job_pools import POOLS
from connector.runtime.spark.session_builder import disable_checksum_files
from connector.runtime.spark.session_conf import CHECKPOINTS
from tests.clients.lake import Lake
from tests.clients.reading_spark import start_reading_spark
from tests.clients.search import Search
from tests.clients.topics import Topics
from tests.harness.local_files import set_modes_without_processes
from tests.harness.order import Stopwatch, put_in_order
from tests.harness.rounds import SEED, THOROUGH, draws
from tests.harness.spark_home import share_spark_home
from tests.model import recordings
from tests.runs.host import Host
from tests.runs.processes import INTERPRETED, Workspace, quick_settings, workspace
from tests.servers.shared import Servers, SharedBroker, SharedRegistry
from tests.servers.store import Store

MakeWorkspace = Callable[..., Workspace]
OpenLake = Callable[[Workspace], Lake]
Replay = Callable[[Iterable[tuple[str, str]]], list[str]]
WITH_SERVERS = ("kafka", "spark", "interop")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the durations be recorded by which tests are put in order."""
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json (make durations)")


def pytest_configure(config: pytest.Config) -> None:
    """Record durations where that is asked for; give the laws the seed that was asked for."""
    # Workers of local clusters keep what they were sent below SPARK_HOME otherwise, which is in the environment of all.
    os.environ.setdefault("SPARK_WORKER_DIR", str(Path(tempfile.gettempdir()) / "icebridge-spark-workers"))
    if config.getoption("--record-durations"):
        config.pluginmanager.register(Stopwatch())
    if SEED is not None:
        hypothesis_core.global_force_seed = SEED


@pytest.hookimpl(trylast=True)  # after -m has left out what is not to run: that counts for no file's time
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take longest, so that two processes end at about the same time."""
    addressed = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if addressed:  # The processes of pytest-xdist then collect different names, and nothing runs.
        raise pytest.UsageError(
            "a test's name holds a memory address; give its parameters ids: " + ", ".join(addressed)
        )
    if astray := [item.nodeid for item in items if _is_astray(item)]:  # make names folders
        raise pytest.UsageError(
            f"tests marked {', '.join(WITH_SERVERS)}, and no others, are in folders named so: {astray}"
        )
    put_in_order(items)


def _is_astray(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(name) for name in WITH_SERVERS)
    return marked != (item.path.relative_to(Path(__file__).parent).parts[0] in WITH_SERVERS)


# How long one example takes says more of the machine than of the law. The examples of a law are the same in every run,
# until ICEBRIDGE_SEED asks for others: a number, or the word random for one of the clock's, which is printed.
settings.register_profile("laws", deadline=None, derandomize=SEED is None, max_examples=draws(100))
settings.load_profile("laws")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which seed repeats this run."""
    if SEED is not None:
        terminalreporter.write_line(f"ICEBRIDGE_SEED={SEED}")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Servers]:
    """The servers that all processes of this run share."""
    own = tmp_path_factory.getbasetemp()
    shared = Servers((own if worker_id == "master" else own.parent) / "servers")
    yield shared
    shared.close()


@pytest.fixture(scope="session", autouse=True)
def started(request: pytest.FixtureRequest) -> None:
    """Start at once, and beside each other, what the tests to come need: each takes seconds, most of them waiting."""
    items = [item for item in request.session.items if any(item.get_closest_marker(name) for name in WITH_SERVERS)]
    needed = {name for item in items for name in getattr(item, "fixturenames", ())}
    for kind in ("broker", "search"):
        if kind in needed:
            request.getfixturevalue("servers").prepare(kind)
    if "spark" in needed:
        request.getfixturevalue("spark")


@pytest.fixture(scope="session")
def broker(servers: Servers) -> SharedBroker:
    """One broker for all tests; each test has topics of its own."""
    return SharedBroker(servers.address("broker"))


@pytest.fixture(scope="session")
def registry(servers: Servers) -> SharedRegistry:
    """A registry with Confluent's API; each test has subjects of its own."""
    return SharedRegistry(servers.address("registry"))


@pytest.fixture(scope="session")
def search(servers: Servers) -> Search:
    """One OpenSearch node for all tests; each test has indexes of its own."""
    return Search(servers.address("search"))


@pytest.fixture(scope="session")
def topics(broker: SharedBroker) -> Topics:
    """The tests' client of that broker."""
    return Topics(broker.bootstrap_servers)


@pytest.fixture(scope="session")
def recorded(servers: Servers, topics: Topics) -> Replay:
    """recorded(cases) writes JSON topics under their own names, as recorded, for tests that only read; gives the names.

    A case is a variant and a table.
    """

    def replay(cases: Iterable[tuple[str, str]]) -> list[str]:
        names = {recordings.topic(*case): case for case in cases}
        for name, case in sorted(names.items()):
            servers.once(f"recorded-{name}", lambda case=case: topics.replay(recordings.load(*case)))  # type: ignore[misc]
        return sorted(names)

    return replay


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One S3 server for all tests; each test has buckets of its own."""
    with Store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="session")
def spark(quick: dict[str, str]) -> Iterator[SparkSession]:
    """One Spark session that reads tables, and runs what is tested inside of this process.

    In `make test` it compiles no plans: they are many, and take few rows each; and it starts no process for each file.
    """
    settings = {
        **quick,
        **CHECKPOINTS,
        **POOLS,
        "spark.python.daemon.module": "connector.worker_daemon",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.shuffle.partitions": "2",
        **({} if THOROUGH else INTERPRETED),
    }

    def prepare(gateway: Any) -> None:
        remember_java_names(gateway)
        if not THOROUGH:
            set_modes_without_processes(gateway.jvm)

    session = start_reading_spark("tests", 2, settings, fetch_jars("spark"), prepare)
    disable_checksum_files(session)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def quick() -> dict[str, str]:
    """Spark settings for the many starts of Spark: half of what a start costs is loading and compiling classes."""
    share_spark_home()
    return quick_settings()


@pytest.fixture(scope="session")
def host(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Runs commands in this process; they find the Spark session that is there, and take it for their own."""
    assert spark
    running = Host(tmp_path_factory.mktemp("host"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def make_workspace(
    broker: SharedBroker, host: Host, quick: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> MakeWorkspace:
    """make_workspace(name, {"topics": ..., ...}) gives a workspace; the name is its connector's."""

    def make(name: str, extra: dict[str, str]) -> Workspace:
        home: Path = tmp_path_factory.mktemp(name)
        return workspace(home, name, broker.bootstrap_servers, {**quick, **extra}, host)

    return make


@pytest.fixture(scope="session")
def plain_workspace(broker: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> MakeWorkspace:
    """The same for sinks that run in the tests' own Spark session: nothing has to start quickly."""
    return lambda name, extra: workspace(tmp_path_factory.mktemp(name), name, broker.bootstrap_servers, extra)


@pytest.fixture(scope="session")
def lake(spark: SparkSession) -> OpenLake:
    """lake(workspace) opens its tables through Iceberg's own code."""
    return lambda space: Lake(spark, space.name, space.catalog)
