"""Events of Iceberg Kafka Connect's control topic, recorded -> what it has written and not committed."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import attrs
import pytest

from connector.settings import SinkSettings, load
from connector.settings.iceberg.iceberg_kafka_connect import ControlTopic
from connector.sink.takeover.control_events import (
    PlacedData,
    UnreadableEvent,
    parse_stored_offsets,
    parse_written_data,
    select_pending,
)

TOPIC, GROUP = "left-control", "connect-left"
EVENTS = (("default",), "events")
EACH = 400
"""So many rows are in the table, and so many are written and not committed."""


@attrs.frozen
class Recording:
    """A control topic of one partition, and what its table's newest snapshot says of it."""

    values: dict[int, bytes]
    summary: dict[str, str]

    def written(self) -> list[PlacedData]:
        """What workers have written."""
        parsed = ((offset, parse_written_data(value)) for offset, value in self.values.items())
        return [PlacedData((TOPIC, 0), offset, data) for offset, data in parsed if data is not None]

    def stored(self) -> dict[int, int]:
        """The table's offsets."""
        found = parse_stored_offsets(self.summary, TOPIC, GROUP)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def recording() -> Recording:
    """What `tests/interop/test_migrations.py` has recorded."""
    packed = Path(__file__).parents[1] / "fixtures" / "iceberg_kafka_connect.json.gz"
    told = json.loads(gzip.decompress(packed.read_bytes()))
    values = {int(offset): base64.b64decode(text) for offset, text in told["events"].items()}
    return Recording(values, told["summary"])


def test_what_workers_have_written_is_read_from_real_events(recording: Recording) -> None:
    """Of all types of events only those that name files count, with group, table and rows."""
    written = [one.written for one in recording.written()]
    assert {(one.group, one.table) for one in written} == {(GROUP, EVENTS)}
    assert sum(one.rows for one in written) == 2 * EACH
    assert len(written) < len(recording.values)


def test_what_no_snapshot_has_is_pending(recording: Recording) -> None:
    """Events behind the offsets that the table's newest snapshot says are not committed."""
    pending = select_pending(recording.written(), GROUP, {EVENTS: recording.stored()})
    assert sum(one.written.rows for one in pending) == EACH
    assert min(one.offset for one in pending) >= recording.stored()[0]


def test_what_a_snapshot_has_is_not_pending(recording: Recording) -> None:
    """The offsets in the table are the next ones: an event before them is in the table, one at them is not."""
    last = max(one.offset for one in recording.written())
    assert select_pending(recording.written(), GROUP, {EVENTS: {0: last + 1}}) == []
    assert [one.offset for one in select_pending(recording.written(), GROUP, {EVENTS: {0: last}})] == [last]


def test_offsets_of_one_table_and_partition_say_nothing_of_another(recording: Recording) -> None:
    """What another table has, or another partition of the control topic, does not commit an event."""
    elsewhere = {(("other",), "events"): {0: 1 << 40}, EVENTS: {1: 1 << 40}}
    assert select_pending(recording.written(), GROUP, elsewhere) == recording.written()


def test_another_groups_data_is_not_ours(recording: Recording) -> None:
    """Connectors share a control topic: of another group's events and offsets nothing is taken."""
    assert select_pending(recording.written(), "connect-other", {}) == []
    assert parse_stored_offsets(recording.summary, TOPIC, "connect-other") is None
    assert parse_stored_offsets(recording.summary, "other-control", GROUP) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xc2\x01",
        b"\xc3\x01" + b'\0\x05"int"\x02',
        b"\xc2\x01\xff\xff",
        b'\xc2\x01\0\x05{"a":',
        b"\xc2\x01\0\x02{}",
        b'\xc2\x01\0\x05"int"\x02',
        b'\xc2\x01\0\x08"string"\xfe\xff\xff\xff\x0f',
    ],
    ids=["null", "empty", "cut", "other version", "length", "no JSON", "no schema", "no record", "too long"],
)
def test_what_is_no_event_is_told_apart(value: bytes | None) -> None:
    """Garbage in the topic is an error of its own, which whoever reads the topic counts."""
    with pytest.raises(UnreadableEvent):
        parse_written_data(value)


def test_an_event_that_is_cut_is_told_apart(recording: Recording) -> None:
    """An event without its end is no event: it is never taken for one without rows."""
    cut = [recording.values[one.offset][:-20] for one in recording.written()]
    for value in cut:
        with pytest.raises(UnreadableEvent):
            parse_written_data(value)


def _load(tmp_path: Path, **keys: str) -> SinkSettings:
    file = tmp_path / "sink.properties"
    own = {"name": "shop", "topics": "events", "bootstrap.servers": "localhost:9092", "iceberg.catalog.warehouse": "/w"}
    own |= {"iceberg.tables": "default.events"}
    file.write_text("".join(f"{key}={value}\n" for key, value in {**own, **keys}.items()))
    return load([file])


def test_the_control_topic_is_that_of_the_file(tmp_path: Path) -> None:
    """A file of that sink has its names and defaults; a file of another has no control topic."""
    theirs = {"connector.class": "org.apache.iceberg.connect.IcebergSinkConnector"}
    assert _load(tmp_path).control is None
    assert _load(tmp_path, **theirs).control == ControlTopic("control-iceberg", "connect-shop")
    named = {"iceberg.control.topic": "mine", "iceberg.connect.group-id": "readers"}
    assert _load(tmp_path, **theirs, **named).control == ControlTopic("mine", "readers")
