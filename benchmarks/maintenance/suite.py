"""sizes -> figures of maintenance: one process fills tables, converts, rewrites and reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from benchmarks.contenders import Place, step
from benchmarks.maintenance.figures import Maintenance, maintenance_line
from benchmarks.plan import MAINTENANCE_CASE, Sizes, matches

BATCHES, VERSION = 50, 3
Say = Callable[[str], None]


def measure_maintenance(place: Place, sizes: Sizes, only: Sequence[str], say: Say) -> tuple[Maintenance | None, str]:
    """Give the figures, None when they are not wanted or it failed, and why it failed."""
    if not matches(MAINTENANCE_CASE, only):
        return None, ""
    say(f"{MAINTENANCE_CASE} ...")
    job, result = place.work / "maintenance.json", place.work / "maintenance-result.json"
    warehouse = place.work / "maintained"
    wanted = {"rows": sizes.rows, "batches": BATCHES, "changes": sizes.changes, "version": VERSION}
    job.write_text(json.dumps({"warehouse": str(warehouse), "job": wanted, "result": str(result)}))
    try:
        step("benchmarks.maintenance.tables", job, place.work / "maintenance.log")
        maintenance = Maintenance.parse(json.loads(result.read_text()))
    except (OSError, RuntimeError, ValueError) as error:
        return None, f"{MAINTENANCE_CASE}: {type(error).__name__}: {error}"
    say(f"  {maintenance_line(maintenance)}")
    return maintenance, ""
