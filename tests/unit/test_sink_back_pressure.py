"""How far tables may be behind with their maintenance before the sink waits: off unless told, each limit by itself."""

from __future__ import annotations

import pytest

from connector.settings.iceberg.maintenance.back_pressure import BackPressureSettings


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (BackPressureSettings(), None),
        (BackPressureSettings(max_snapshots=1000), None),
        (BackPressureSettings(max_snapshots=999), "1000 snapshots (iceberg.backpressure.max-snapshots=999)"),
        (BackPressureSettings(max_delete_files=50), "51 delete files (iceberg.backpressure.max-delete-files=50)"),
        (
            BackPressureSettings(9, 9),
            "1000 snapshots (iceberg.backpressure.max-snapshots=9) and "
            "51 delete files (iceberg.backpressure.max-delete-files=9)",
        ),
    ],
)
def test_a_table_above_a_limit_is_told(limits: BackPressureSettings, told: str | None) -> None:
    """With both numbers and the option's name."""
    assert limits.find_excess(1000, 51) == told
