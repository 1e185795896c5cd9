"""a real MySQL -> Debezium's MySQL connector -> our sink -> the rows that the database has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace, OpenLake
from tests.interop.binlog_arrivals import DELETES, VARIANTS, find_differences
from tests.interop.binlog_recording import record, write_fixtures
from tests.interop.connect import Connect
from tests.interop.mysql import MySql
from tests.servers.shared import SharedBroker, SharedRegistry

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def mysql() -> Iterator[MySql]:
    """One server for the story."""
    with MySql() as running:
        yield running


@pytest.fixture(scope="module")
def recorded(
    mysql: MySql,
    connect: Connect,
    broker: SharedBroker,
    registry: SharedRegistry,
    topics: Topics,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The story, told by a connector of each variant; kept where ICEBRIDGE_RECORD names a folder."""
    folder = tmp_path_factory.mktemp("mysql")
    records = record(mysql, connect, topics, folder, broker.bootstrap_servers, registry.url)
    if kept := os.environ.get("ICEBRIDGE_RECORD"):
        write_fixtures(Path(kept), mysql, records, registry.url)


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("deletes", DELETES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_real_mysql_arrives(
    mysql: MySql,
    registry: SharedRegistry,
    make_workspace: MakeWorkspace,
    lake: OpenLake,
    variant: str,
    deletes: str,
) -> None:
    """Every table ends as the database has it, in the default mode and with hard deletes; nothing is a dead letter."""
    assert find_differences(mysql, registry, make_workspace, lake, variant, deletes) == {}
