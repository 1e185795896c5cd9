"""Reports of snapshots -> notifications in Debezium's form; what cannot be sent costs nothing."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field

from connector.errors import FatalError
from connector.runtime.monitoring.listeners import SnapshotReport
from connector.source.notifications import TopicNotifications, additional_data
from serde.emit.notification import notification_key, notification_value
from serde.emit.side_topics import SideMessage


@define
class Sent:
    """What was sent; fails where it is told to."""

    fails: bool = False
    messages: list[tuple[Any, Any]] = field(factory=list)

    def __call__(self, key: SideMessage, value: SideMessage) -> None:
        if self.fails:
            raise FatalError("no right to write")
        self.messages.append((key.payload, value.payload))


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (
            SnapshotReport("Incremental Snapshot", "STARTED", "7", ("db.a", "db.b")),
            {"connector_name": "p", "data_collections": "db.a,db.b"},
        ),
        (
            SnapshotReport("Incremental Snapshot", "IN_PROGRESS", "7", ("db.a",), "db.a", 40),
            {
                "connector_name": "p",
                "data_collections": "db.a",
                "current_collection_in_progress": "db.a",
                "total_rows_scanned": "40",
            },
        ),
        (
            SnapshotReport("Initial Snapshot", "TABLE_SCAN_COMPLETED", "", ("db.a",), "db.a", 0, "EMPTY"),
            {
                "connector_name": "p",
                "data_collections": "db.a",
                "scanned_collection": "db.a",
                "total_rows_scanned": "0",
                "status": "EMPTY",
            },
        ),
    ],
    ids=["started", "in-progress", "scanned"],
)
def test_a_notification_says_what_debezium_says(report: SnapshotReport, told: dict[str, str]) -> None:
    """Names and texts of the additional data are Debezium's."""
    assert additional_data(report, "p") == told
    sent = Sent()
    TopicNotifications("p", sent, lambda: 5).on_snapshot(report)
    ((key, value),) = sent.messages
    assert key == {"id": value["id"]}
    assert value["id"] == report.id or not report.id
    expected = (report.stage, report.aggregate, told, 5)
    assert (value["type"], value["aggregate_type"], value["additional_data"], value["timestamp"]) == expected


def test_a_topic_that_cannot_be_written_holds_nothing_up() -> None:
    """The failure is logged; the source goes on."""
    TopicNotifications("p", Sent(fails=True)).on_snapshot(SnapshotReport("Initial Snapshot", "STARTED"))


def test_schemas_of_notifications() -> None:
    """The schema block has Debezium's names and the fields in its order."""
    key, value = notification_key("1"), notification_value("1", "Initial Snapshot", "STARTED", {"a": "b"}, 3)
    assert key.schema["name"] == "io.debezium.connector.common.NotificationKey"
    assert value.schema["name"] == "io.debezium.connector.common.Notification"
    names = ["id", "type", "aggregate_type", "additional_data", "timestamp"]
    assert [one["field"] for one in value.schema["fields"]] == names == list(value.payload)
