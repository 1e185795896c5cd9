"""Changes of key and rows of any order, chains and circles -> arrays tell of each row what plain Python tells."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.rounds import draws
from tests.model.rows_before import draw_events, find_by_tasks, follow

pytestmark = [pytest.mark.laws, pytest.mark.timeout(300)]


@settings(max_examples=draws(300), deadline=None)
@given(st.integers(0, 2**32))
def test_rows_are_followed_as_plain_python_does(seed: int) -> None:
    """Chains of any length, circles, equal dates, several logs, and rows that no event tells the age of."""
    rng = random.Random(seed)
    width = rng.randrange(1, 4)
    events = draw_events(rng, width, keys=rng.choice([1, 3, 8]), most=20)
    expected = follow(events)
    found = find_by_tasks(events, width, cut=rng.choice([1, 2, 5, 100]))
    assert found.keys() == expected.keys()
    for at, one in expected.items():
        assert found[at] == (one if one.values else type(one)(one.key, (None,) * width, one.changed))
