"""Changes of a key, some of which a connector sent again -> the order in which they came first."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.sink.fold.order.original_order import restore_order
from connector.sink.model.change_rows import ChangeOrder
from serde.events.kinds.operations import OP_CREATE, OP_DELETE, OP_UPDATE, TOMBSTONE
from serde.events.positions.log_positions import NO_VALUE, unknown_positions
from tests.harness.rounds import draws

pytestmark = [pytest.mark.laws, pytest.mark.timeout(300)]

LoggedChange = tuple[int, bool]
"""The serial of a change, and whether it is the tombstone behind it."""


def _draw_log(rng: random.Random, length: int) -> list[LoggedChange]:
    """Changes as a connector that restarts now and then sends them; deletes with their tombstones."""
    truth = [(serial, bare) for serial in range(length) for bare in ((False, True) if serial % 3 == 2 else (False,))]
    log, at = list[LoggedChange](), 0
    while at < len(truth):
        until = rng.randint(at, len(truth))
        log += truth[at:until]
        starts = [at for at in range(until + 1) if at == len(truth) or not truth[at][1]]
        at = until if rng.random() < 0.6 else rng.choice(starts)
        if len(log) > 8 * length:
            log += truth[at:]
            break
    return log


def _order(log: list[LoggedChange], *, placed: bool) -> ChangeOrder:
    serials = np.array([NO_VALUE if bare else 10 + serial for serial, bare in log], np.int64)
    place = unknown_positions(len(log))
    if placed:
        place[:, 0] = [0 if bare else 7 for _, bare in log]
        place[:, 1] = serials
        place[:, 2:] = np.where(serials == NO_VALUE, NO_VALUE, 0)[:, None]
    ops = [TOMBSTONE if bare else (OP_CREATE, OP_UPDATE, OP_DELETE)[serial % 3] for serial, bare in log]
    offsets = np.arange(len(log), dtype=np.int64)
    return ChangeOrder(np.zeros(len(log), np.int64), offsets, serials, serials, place, np.array(ops, np.uint8))


@settings(max_examples=draws(300), deadline=None)
@given(st.integers(0, 2**32))
def test_what_is_sent_again_goes_where_it_came_first(seed: int) -> None:
    """Whatever part of a log a batch has, and however often it was sent: its changes are told as the source made them,
    each tombstone behind its delete, and the copies of one in Kafka's order. A tombstone without its delete, which the
    part begins with, stays in front of the next change.
    """
    rng = random.Random(seed)
    logs = [_draw_log(rng, rng.randint(1, 9)) for _ in range(rng.randint(1, 3))]
    parts = []
    for log in logs:
        first = rng.randrange(len(log))
        parts.append(log[first : rng.randint(first + 1, len(log))])
    group = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = ChangeOrder.concat([_order(part, placed=rng.random() < 0.5) for part in parts])
    restored = restore_order(group, order).tolist()
    start = 0
    for part in parts:
        ranks = [serial for serial, _ in part]
        if part[0][1]:
            ranks[0] = ranks[min(1, len(part) - 1)]
        expected = sorted(range(len(part)), key=lambda at: (ranks[at], at))
        assert [at - start for at in restored[start : start + len(part)]] == expected
        start += len(part)


def test_a_log_that_begins_anew_keeps_its_changes_behind_those_before_it() -> None:
    """Smaller places with later dates are no repetition: nothing goes in front of what Kafka had before it."""
    order = _order([(5, False), (6, False), (0, False), (1, False), (0, False)], placed=True)
    order.date[:] = order.dedup[:] = [1, 2, 3, 4, 3]
    assert restore_order(np.zeros(5, np.int64), order).tolist() == [0, 1, 2, 4, 3]
