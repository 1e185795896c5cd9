"""Which snapshots of a table that the sink made are kept: by its properties, whoever set them."""

from __future__ import annotations

import pytest

from connector.iceberg.commit.snapshot_expiry import AGE, EXPIRES, LEAST, MADE, METADATA, Keeping

HOUR_MS = 3600 * 1000


@pytest.mark.parametrize(
    "properties",
    [{}, METADATA, {**MADE, EXPIRES: "false"}, {**MADE, "gc.enabled": "false"}, {AGE: "1"}, {**MADE, AGE: "an hour"}],
)
def test_other_tables_keep_their_snapshots(properties: dict[str, str]) -> None:
    """Tables of others, those whose property says so, and what cannot be understood are left alone."""
    assert Keeping.of(properties) is None


def test_old_snapshots_go_in_portions() -> None:
    """None goes that is young, or among the newest; and not each commit expires one."""
    keeping = Keeping.of({**MADE, LEAST: "100"})
    assert keeping == Keeping(HOUR_MS, 100)
    assert not keeping.is_due(100, 0, 9 * HOUR_MS)
    assert not keeping.is_due(4000, 0, HOUR_MS + 1)
    assert keeping.is_due(4000, 0, 2 * HOUR_MS)
