"""What map tasks told once is what they tell again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import pytest

from connector.sink.job.shuffle import unpack
from connector.sink.model.change_rows import MASKS, ChangeOrder
from connector.sink.model.plan import BatchPlan
from connector.sink.model.task_output import OutputKind, TaskOutput, unpack_value
from tests.simulation.known_shares import SHARES, KnownJob
from tests.simulation.process import quiet
from tests.simulation.shrinking import tell
from tests.simulation.stories import SCRIPT, make_story
from tests.unit.local_job import LocalJob

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """No log, one thread."""
    with quiet():
        yield


def _told(outputs: Iterable[TaskOutput], plan: BatchPlan) -> list[Any]:
    """What outputs say, without how long it took, and what stands in bytes that nobody reads."""
    return [(one.kind, one.table, one.bucket, *_read(one, plan)) for one in outputs]


def _read(output: TaskOutput, plan: BatchPlan) -> tuple[Any, ...]:
    if output.kind == OutputKind.DRIVER:
        return (str(unpack_value(output.payload)).partition("fetch_seconds")[0],)
    if output.kind != OutputKind.CHANGES:
        return ()
    part = unpack(output.payload, plan.tables[output.table].layout.rows)
    order = [getattr(part.order, field.name).tolist() for field in attrs.fields(ChangeOrder)]
    masks = [getattr(part, name).tolist() for name in MASKS]
    return part.rows.to_pylist(), order, masks, None if part.numbers is None else part.numbers.tolist()


def test_shares_that_are_known_are_those_that_a_task_would_tell(tmp_path: Path) -> None:
    """For some stories each known share is done as well, and tells the same: nothing is missing in a question."""
    known, whole = KnownJob.map_share, LocalJob.map_share
    pairs: list[tuple[Any, Any]] = []

    def map_share(self: KnownJob, plan: Any, writers: Any, share: int) -> Iterable[TaskOutput]:
        before = len(SHARES.known)
        told = list(known(self, plan, writers, share))
        if all(table.upsert for table in plan.tables) and len(SHARES.known) == before:
            pairs.extend(zip(_told(told, plan), _told(whole(self, plan, writers, share), plan), strict=True))
        return told

    with patch.object(KnownJob, "map_share", map_share):
        for script in range(6):
            for seed in range(script * SCRIPT, script * SCRIPT + 8):
                assert tell(make_story(seed), str(tmp_path)) is None
    assert len(pairs) > 20
    assert [pair for pair in pairs if pair[0] != pair[1]] == []
