"""The rules by which maintenance commits -> the same without one of their conditions, for as long as a test needs it.

Each is a condition of `rewrite_rules.may_land`, of `validation.find_conflict` or of a lease, and stands beside a story
that goes wrong without it. What is left out here, and why: docs/decisions/0078.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import attrs

from connector.maintenance import rewrite_rules
from connector.maintenance.conversion import conversion, validation
from connector.maintenance.conversion.validation import LaterSnapshot
from connector.maintenance.lease import MaintenanceRun
from tests.simulation.steps import Batch, Kill, Maintain, SourceStep, Story, TableStep, World

_HIT = ("added-position-delete-files", "added-dvs", "removed-position-delete-files", "removed-dvs")


@contextmanager
def rewrites_take_deletes_along() -> Iterator[None]:
    """A rewrite lands although Iceberg drops deletes with it that its own files still need."""
    whole = rewrite_rules.may_land

    def land(made: Any, later: Iterable[Any]) -> bool:
        return whole(attrs.evolve(made, revives_rows=False), later)

    with patch.object(rewrite_rules, "may_land", land):
        yield


@contextmanager
def rewrites_land_on_conversions() -> Iterator[None]:
    """A rewrite lands although deletes by key have since become positions in the files that it has read."""
    with patch.object(rewrite_rules, "_changes_deletes", lambda _: False):
        yield


@contextmanager
def conversions_land_on_rewritten_files() -> Iterator[None]:
    """A conversion takes rewrites of ours for harmless: the files that it has positions of may be gone."""
    whole = validation.may_conflict

    def may_conflict(operation: str, summary: Mapping[str, str]) -> bool:
        return operation != "replace" and whole(operation, summary)

    with patch.object(validation, "may_conflict", may_conflict):
        yield


@contextmanager
def runs_go_on_without_their_lease() -> Iterator[None]:
    """A run that stood still until its lease had ended commits as if nothing had happened meanwhile."""
    with patch.object(MaintenanceRun, "is_held", lambda _: True):
        yield


@contextmanager
def conversions_land_on_changed_files() -> Iterator[None]:
    """A conversion does not look at what others did to the data files that it has positions of."""
    with patch.object(validation, "may_conflict", lambda *_: False):
        yield


@contextmanager
def conversions_land_beside_later_positions() -> Iterator[None]:
    """A conversion only looks for data files that are gone: of later vectors of the others it knows nothing."""
    counts = tuple(name for name in validation._HARMFUL_COUNTS if name not in _HIT)
    with patch.object(validation, "_HARMFUL_COUNTS", counts):
        yield


@contextmanager
def conversions_look_behind_their_plan() -> Iterator[None]:
    """What was there when a conversion was planned is in its way."""

    def find(later: Iterable[LaterSnapshot], _: int, referenced: frozenset[str]) -> str | None:
        found = validation.find_conflict(later, -1, referenced)
        return None if found is not None and "ancestor" in found else found

    with patch.object(conversion, "find_conflict", find):
        yield


_SMALL_BATCHES = (
    (11, SourceStep("commit", 573)),
    (12, Batch(0, 653)),
    (13, SourceStep("commits", 534)),
    (14, Batch(0, 992)),
    (15, Batch(0, 62, whole=True)),
)
BESIDE_A_REWRITE = Story(
    World(version=3),
    (SourceStep("commits", 619), Batch(0, 1, whole=True), Maintain(("rewrite",), 714, _SMALL_BATCHES)),
)
"""While files are merged a batch brings deletes only, and the next ones rows that are younger."""

BESIDE_A_CONVERSION = Story(
    World(version=3, then="position-delete"),
    (
        SourceStep("commits", 261),
        Batch(0, 1, whole=True),
        SourceStep("commit", 120),
        Batch(0, 1, whole=True),
        Kill(0),
        SourceStep("commits", 507),
        Maintain(("convert",), 779, ((10, Batch(0, 460, whole=True)),)),
    ),
)
"""The write mode was changed: a sink puts a vector to a data file that a conversion has one for."""

_FILLED = SourceStep("commits", 0), Batch(0, 1, whole=True), SourceStep("commits", 1)
_AN_HOUR = TableStep("jump of the clock", 0)
_BATCH = Batch(0, 5, whole=True)

BESIDE_ANOTHER_CONNECTOR = Story(
    World(), (*_FILLED, Maintain(("rewrite",), 714, ((14, _BATCH), (15, Maintain(("convert",), 2, apart=True)))))
)
"""While files are merged, another connector makes positions of the deletes of a batch that came since."""

BEHIND_A_KILLED_REWRITE = Story(
    World(),
    (
        *_FILLED,
        Maintain(("rewrite",), 714, ((14, _BATCH), (15, "late"), (16, "crash"))),
        _AN_HOUR,
        Maintain(("convert",), 779, ((13, TableStep("land late commits", 0)),)),
    ),
)
"""The commit of a killed rewrite comes in while the deletes of the batch behind it are converted."""

BEHIND_A_LEASE = Story(
    World(upsert=False),
    (*_FILLED, Maintain(("rewrite",), 714, ((14, _AN_HOUR), (15, _BATCH), (16, Maintain(("convert",), 3))))),
)
"""A run stands still between its files and its commit, and the next one removes what it takes for a killed one's."""

RULE_MUTATIONS: Mapping[str, tuple[Callable[[], AbstractContextManager[None]], Story, str]] = {
    made.__name__: (made, story, wrong)
    for made, story, wrong in (
        (rewrites_take_deletes_along, BESIDE_A_REWRITE, "must be not there"),
        (rewrites_land_on_conversions, BESIDE_ANOTHER_CONNECTOR, "has two rows"),
        (conversions_land_on_rewritten_files, BEHIND_A_KILLED_REWRITE, "has two rows"),
        (runs_go_on_without_their_lease, BEHIND_A_LEASE, "is gone"),
        (conversions_land_on_changed_files, BESIDE_A_CONVERSION, "two vectors"),
        (conversions_land_beside_later_positions, BESIDE_A_CONVERSION, "two vectors"),
        (conversions_look_behind_their_plan, BESIDE_A_CONVERSION, "fails for no reason"),
    )
}
