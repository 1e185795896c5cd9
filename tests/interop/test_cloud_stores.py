"""Warehouses on emulators of the stores of Google and Azure: sink, source and maintenance work on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.topics import Topics
from tests.conftest import MakeWorkspace
from tests.interop.cloud_stores import AzureStore, CloudStore, GoogleStore, missing_program
from tests.runs.stored_tables import load_change_and_publish, maintain, make_events, sink_properties

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module", params=["gcs", "adls"])
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudStore]:
    """One emulator after the other."""
    kind, needs = {"gcs": (GoogleStore, ("go",)), "adls": (AzureStore, ("node", "npm"))}[request.param]
    if missing := missing_program(*needs):
        pytest.skip(f"the emulator needs {missing} on the path")
    home: Path = tmp_path_factory.mktemp("cloud")
    with kind(home) as running:
        yield running


def test_sink_and_source_work_on_a_cloud_store(
    cloud: CloudStore, topics: Topics, plain_workspace: MakeWorkspace
) -> None:
    """First load, upserts, a full read and the merge-on-read changes, with nothing configured but the store."""
    name = cloud.name.replace("-", "")
    warehouse = cloud.make_bucket("first-load") + "/warehouse"
    runs = load_change_and_publish(topics, plain_workspace, name, cloud.properties, warehouse)
    assert not any(cloud.secret in run.text for run in runs)


def test_maintenance_works_on_a_cloud_store(cloud: CloudStore, topics: Topics, plain_workspace: MakeWorkspace) -> None:
    """Every task of `icebridge maintain` that the emulator can serve ends without a failure."""
    name = f"kept{cloud.name.replace('-', '')}"
    warehouse = cloud.make_bucket("maintained") + "/warehouse"
    space = plain_workspace(name, {"topics": f"{name}.t", **sink_properties(cloud.properties, warehouse)})
    for turn in range(3):
        changed = dict.fromkeys(range(turn, 60, turn + 1), f"turn {turn}")
        topics.replay(make_events(f"{name}.t", changed, turn * 100), create=not turn)
        run = space.start({}, "--once").wait(240)
        assert run.code == 0, run.text[-6000:]
    report = maintain(space, orphans=cloud.lists_folders)
    assert [one["failure"] for one in report["done"].values()] == [None] * len(report["done"])
    assert {"convert", "rewrite"} <= report["done"].keys()
    assert report["state"]["equality_deletes"] == 0
