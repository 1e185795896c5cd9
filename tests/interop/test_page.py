"""The page in a real browser: what a person sees, light and dark."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from connector.runtime.lifecycle import Lifecycle
from connector.runtime.monitoring.listeners import BatchReport
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.server.connectors.port import Check
from connector.server.recent import RecentActivity
from tests.interop.debian import find_program
from tests.servers.connectors import InMemoryConnector, TestServer, serving

pytestmark = pytest.mark.interop


class ShownConnector(InMemoryConnector):
    """A connector with something to show."""

    def overview(self) -> dict[str, Any]:
        """A sink's, with a lag, dead letters and a few batches."""
        recent = RecentActivity()
        for number in range(3):
            recent.on_batch(
                BatchReport(
                    number,
                    1.25,
                    {},
                    metrics=TaskMetrics(events=1000 + number, rows=Counter({0: 5})),
                    tables={"shop.<b>orders</b>": {"data_files": 2, "delete_files": 1}},
                    dead_letters=1,
                    stages={"VALUE_CONVERTER": 1},
                    reasons=((f"shop.public.orders-0 offset {number}", "VALUE_CONVERTER", "is not JSON"),),
                    commit_seconds=0.4,
                )
            )
        minutes = [*((at * 37) % 900 for at in range(59)), recent.per_minute()[-1]]
        table = {"commits": 3, "data_files": 6, "delete_files": 3, "drift": 1, "newest_event_ms": 1_800_000_000_000}
        return {
            "lag": {"shop.public.orders": 1234, "shop.public.items": 0},
            "tables": {"shop.<b>orders</b>": table},
            "files": {"shop.<b>orders</b>": {"data_files": 41, "equality_delete_files": 7, "snapshots": 3}},
            "recent": recent.last(),
            "per_minute": minutes,
            "dead_letters": recent.dead_letters(),
            "last_dead_letters": recent.last_dead_letters(),
            "dead_letter_topic": "shop-dead-letters",
            "snapshots": {},
        }


@pytest.fixture
def server() -> Any:
    with serving() as running:
        for name, state in (("shop", "RUNNING"), ("paused", "PAUSED"), ("broken", "FAILED")):
            connector = ShownConnector(name, {}, Lifecycle(), told=[Check("shop-broker", False, {"reason": "away"})])
            connector.lifecycle.state = state  # type: ignore[assignment]
            connector.lifecycle.error = "FatalError: no such table"
            running.worker.add(connector)
        yield running


def _browse(url: str, *arguments: str) -> str:
    browser = find_program("chromium", "chromium")
    quiet = ["--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
    command = [browser, "--headless", "--no-sandbox", *quiet, "--virtual-time-budget=4000", *arguments, url]
    return subprocess.run(command, capture_output=True, check=True, timeout=120, text=True).stdout


def test_what_a_person_sees(server: TestServer, tmp_path: Path) -> None:
    """States, reasons, figures; names are shown as they are written; nothing is loaded from elsewhere."""
    shown = _browse(server.rest.url, "--dump-dom")
    for words in (
        "shop",
        "running",
        "paused",
        "failed",
        "FatalError: no such table",
        "shop-broker: away",
        "1,234",
        "is not JSON",
    ):
        assert words in shown
    assert "shop.&lt;b&gt;orders&lt;/b&gt;" in shown
    assert "Dead letters since the start, in topic shop-dead-letters" in shown
    assert shown.count("<rect") == 180
    for mode in ("light", "dark"):
        file = tmp_path / f"{mode}.png"
        dark = ["--force-dark-mode", "--enable-features=WebContentsForceDark"] if mode == "dark" else []
        _browse(server.rest.url, f"--screenshot={file}", "--window-size=1100,1500", *dark)
        assert file.stat().st_size > 10_000
