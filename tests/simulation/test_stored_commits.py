"""Commits of two processes of one name -> those that the offsets table has of their table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.iceberg.state.offsets_table import OffsetsTable
from tests.simulation.catalog_server import CatalogServer
from tests.simulation.interruptions import Interruptions
from tests.simulation.process import settings_of
from tests.simulation.steps import World
from tests.simulation.store import STORES
from tests.simulation.tables import SimulatedCatalog, offsets_in_memory

pytestmark = pytest.mark.unit

TABLE = "d.t"
AT = ("t", 0)


def _commit(number: int, end: int, uuid: str = "u") -> StoredCommit:
    return StoredCommit(KafkaOffsets("c", {}, {AT: end}), uuid, number, number)


EARLIER, LATER = _commit(2, 24), _commit(5, 24)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SimulatedCatalog]:
    """A catalog without tables."""
    server, calls = CatalogServer(store=-1), Interruptions()
    STORES[-1] = (server, calls)
    with offsets_in_memory():
        yield SimulatedCatalog(server, calls, settings_of(World().properties, str(tmp_path)).errors, lambda: None)
    STORES.pop(-1)


def _open(catalog: SimulatedCatalog) -> OffsetsTable:
    return OffsetsTable(catalog, "_offsets", "sink")


def test_an_earlier_commit_does_not_replace_a_later_one(catalog: SimulatedCatalog) -> None:
    """A slower process that stores the same offsets leaves the faster one's commit, and what it adds is stored."""
    slow, fast = _open(catalog), _open(catalog)
    fast.save(LATER.position, {TABLE: LATER})
    slow.save(LATER.position, {TABLE: EARLIER, "d.other": EARLIER})
    assert _open(catalog).tables == {TABLE: LATER, "d.other": EARLIER}


def test_a_later_commit_replaces_an_earlier_one(catalog: SimulatedCatalog) -> None:
    """Whoever is behind it, the newest commit is stored."""
    slow, fast = _open(catalog), _open(catalog)
    slow.save(LATER.position, {TABLE: EARLIER})
    fast.save(LATER.position, {TABLE: LATER})
    assert _open(catalog).tables == {TABLE: LATER}


@pytest.mark.parametrize(
    ("stored", "overtaken"),
    [
        (LATER, True),
        (_commit(5, 30), True),
        (EARLIER, False),
        (_commit(1, 24), False),
        (_commit(5, 18), False),  # made where the other was rolled back: that it came less far tells of it
        (_commit(5, 24, "another"), False),  # the table was made again
        (attrs.evolve(LATER, sequence_number=0), False),  # of format version 1: nothing tells which is later
    ],
)
def test_what_overtakes_a_commit(stored: StoredCommit, overtaken: bool) -> None:
    """A later commit to the same table does, that is no less far."""
    assert EARLIER.is_overtaken(stored) is overtaken
