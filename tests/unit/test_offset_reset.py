"""Offsets that are to be reset -> those of the topics that are named alone; what else is known stays known.

Without a JVM: tables and the offsets table are values.
"""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import attrs
import pytest
from click.testing import CliRunner

from connector.cli.main import main
from connector.cli.offsets import sink_positions
from connector.cli.status.cluster import ClusterView
from connector.cli.status.sink_state import SinkState
from connector.errors import CommitRefused, ConfigError, FatalError, GapError
from connector.iceberg.commit.commit import PendingCommit
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.iceberg.state.offset_rows import OffsetRows
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.kafka.admin import TopicInfo
from connector.runtime.lifecycle import Lifecycle
from connector.server.connectors import sink_connector, source_connector
from connector.server.connectors.port import ConnectorOffset
from connector.server.errors import RestError
from connector.settings.source.settings import load_source
from connector.sink import offset_reset
from connector.sink.microbatch.start_offsets import ClusterState, find_starting_offsets
from connector.sink.offset_reset import merge_offsets, replace_offsets
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.table_offset import TableOffset
from tests.unit.local_sink import local_sink
from tests.unit.test_cli_paths import SINK, SOURCE

A, B = ("a", 0), ("b", 0)
CLUSTER = ClusterState(
    "c", {"a": TopicInfo("a", "a2", 1), "b": TopicInfo("b", "b2", 1)}, {A: 0, B: 0}, {A: 500, B: 500}
)
BEFORE = KafkaOffsets("c", {"a": "a1", "b": "b1"}, {A: 100, B: 100})


def test_a_topic_that_is_not_named_keeps_its_id() -> None:
    """Its offsets are of the topic that it was: where it was made again, too, the sink has to stop as before."""
    wanted = merge_offsets(BEFORE, CLUSTER, CLUSTER.beginnings, ("a",))
    assert (wanted.offsets, wanted.topic_ids["a"]) == ({A: 0, B: 100}, "a2")
    with pytest.raises(GapError, match="topic b was deleted and made again"):
        find_starting_offsets(wanted, {}, {}, CLUSTER, "earliest")
    assert merge_offsets(BEFORE, CLUSTER, CLUSTER.beginnings, ()).topic_ids == {"a": "a2", "b": "b2"}


def test_a_topic_alone_cannot_move_to_another_cluster() -> None:
    """The offsets of the others would be taken for those of this one."""
    moved = attrs.evolve(BEFORE, cluster_id="former")
    with pytest.raises(ConfigError, match="Kafka cluster former, this is c: none of them can stay"):
        merge_offsets(moved, CLUSTER, CLUSTER.beginnings, ("a",))
    assert merge_offsets(moved, CLUSTER, CLUSTER.beginnings, ()).cluster_id == "c"
    assert merge_offsets(KafkaOffsets(), CLUSTER, CLUSTER.beginnings, ("a",)).offsets == {A: 0}


def test_stored_offsets_stay_those_of_the_topics_that_they_are_of() -> None:
    """`--to stored` moves nothing: an offset of a topic that is gone is none of the one that has its name now."""
    wanted = merge_offsets(BEFORE, CLUSTER, BEFORE.offsets, (), moves=False)
    assert wanted.topic_ids == BEFORE.topic_ids
    with pytest.raises(GapError, match="made again"):
        find_starting_offsets(wanted, {}, {}, CLUSTER, "earliest")


class _Offsets:
    """An offsets table, as the reset sees it."""

    def __init__(self, **tables: KafkaOffsets) -> None:
        self.tables = {name: StoredCommit(position, name, 1, 7) for name, position in tables.items()}

    def replace(self, _: KafkaOffsets, tables: dict[str, StoredCommit]) -> None:
        self.tables = dict(tables)


def _reset(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    offsets: _Offsets,
    found: dict[str, KafkaOffsets],
    wanted: KafkaOffsets,
    **how: Any,
) -> dict[str, KafkaOffsets]:
    """Return what the tables say afterwards, of those that got a commit."""
    committed = dict[str, KafkaOffsets]()

    def commit(table: Any, pending: PendingCommit, _: str) -> Any:
        committed[table.name] = pending.position
        return SimpleNamespace(snapshot_id=2, sequence_number=8)

    class Targets(dict[str, Any]):
        def find_existing(self, _: Any) -> list[str]:
            return sorted(self)

    targets: Any = Targets(
        {
            name: SimpleNamespace(table=SimpleNamespace(name=name, uuid=name), stored=LastCommit(position), base=1)
            for name, position in found.items()
        }
    )
    monkeypatch.setattr(offset_reset, "commit_files", commit)
    settings = local_sink(tmp_path, ["topics=a,b"]).batches._settings
    stored: Any = offsets
    replace_offsets(settings, stored, targets, CLUSTER, wanted, **how)
    return committed


def test_a_table_that_is_ahead_stays_where_offsets_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A batch of two tables: one has it, the other was rolled back, and the sink stopped before it saved its offsets.
    `--to stored` goes on without what the other one lost, and must not bring the batch into the first one again.
    """
    offsets = _Offsets(one=KafkaOffsets("c", {}, {A: 100}), two=KafkaOffsets("c", {}, {B: 100}))
    found = {"one": KafkaOffsets("c", {}, {A: 150}), "two": KafkaOffsets("c", {}, {B: 60})}
    wanted = KafkaOffsets("c", {}, {A: 100, B: 100})
    committed = _reset(monkeypatch, tmp_path, offsets, found, wanted, moved=())
    assert {name: position.offsets for name, position in committed.items()} == {"one": {A: 150}, "two": {B: 100}}
    assert offsets.tables["one"].position.offsets == {A: 150}


def test_what_is_moved_is_moved_back_in_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a table of two topics, that which is named goes where it is told, the other one stays where the table is."""
    offsets = _Offsets(one=KafkaOffsets("c", {}, {A: 100, B: 100}))
    found = {"one": KafkaOffsets("c", {}, {A: 150, B: 150})}
    wanted = KafkaOffsets("c", {}, {A: 0, B: 100})
    committed = _reset(monkeypatch, tmp_path, offsets, found, wanted, moved={A}, topics=("a",))
    assert committed["one"].offsets == {A: 0, B: 150}


def test_tables_of_other_topics_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a rollback nor a drop of theirs is accepted by a reset of another topic: the sink stops for it, still."""
    gone = KafkaOffsets("c", {}, {B: 100})
    offsets = _Offsets(one=KafkaOffsets("c", {}, {A: 100}), two=gone, three=gone)
    found = {"one": KafkaOffsets("c", {}, {A: 100}), "two": KafkaOffsets("c", {}, {B: 60})}
    before = dict(offsets.tables)
    wanted = KafkaOffsets("c", {}, {A: 0, B: 100})
    committed = _reset(monkeypatch, tmp_path, offsets, found, wanted, moved={A}, topics=("a",))
    assert committed.keys() == {"one"}
    assert (offsets.tables["two"], offsets.tables["three"]) == (before["two"], before["three"])
    _reset(monkeypatch, tmp_path, offsets, found, wanted, moved={A, B})
    assert offsets.tables.keys() == {"one", "two"}


@pytest.mark.parametrize(
    ("properties", "option", "says"),
    [
        (SINK, ("--table", "orders"), "--table orders: is for a source, and this is a sink; name topics by --topic"),
        (SOURCE, ("--topic", "orders"), "--topic orders: is for a sink, and this is a source; name tables by --table"),
    ],
)
def test_a_choice_that_is_another_connectors_resets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: str, option: tuple[str, str], says: str
) -> None:
    """Were it left out, all topics, or all tables, would be reset."""
    done = list[str]()
    for module in ("sink", "source"):
        monkeypatch.setattr(f"connector.cli.offsets.{module}.reset", lambda *_, **how: done.append(how["to"]))
    file = tmp_path / "connector.properties"
    file.write_text(properties, "utf-8")
    result = CliRunner().invoke(main, ["offsets", "reset", str(file), *option, "--execute"])
    assert (done, result.exit_code, says in result.output) == ([], 3, True)


def test_a_topic_that_the_sink_does_not_read_is_told() -> None:
    """As a table of a source is: a slip in its name would reset nothing, and look like success."""
    with pytest.raises(ConfigError, match="--topic c, d: not a topic that this sink reads; it reads a, b"):
        merge_offsets(BEFORE, CLUSTER, CLUSTER.beginnings, ("a", "d", "c"))


def test_rest_keeps_the_ids_of_what_it_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`PATCH .../offsets` of one topic says nothing of another one, which was made again."""
    settings, put = local_sink(tmp_path, ["topics=a,b"]).batches._settings, list[tuple[Any, Any]]()
    for name, answer in (
        ("KafkaAdmin", lambda _: None),
        ("inspect_cluster", lambda _: CLUSTER),
        ("open_state", lambda *_: (SimpleNamespace(position=BEFORE), None)),
        ("replace_offsets", lambda *words, **how: put.append((words[4], how))),
    ):
        monkeypatch.setattr(sink_connector, name, answer)
    connector = sink_connector.SinkConnector(settings, {}, Lifecycle(), Mock)
    given = {"kafka_topic": "a", "kafka_partition": 0}
    connector.alter_offsets([ConnectorOffset(given, {"kafka_offset": 7})])
    connector.alter_offsets(None)
    (patched, how), (forgotten, _) = put
    assert (patched.offsets, patched.topic_ids, how["topics"]) == ({A: 7, B: 100}, {"a": "a2", "b": "b1"}, ("a",))
    assert (forgotten.offsets, forgotten.topic_ids) == ({A: 0, B: 0}, {"a": "a2", "b": "b2"})
    former = SimpleNamespace(position=attrs.evolve(BEFORE, cluster_id="former"))
    monkeypatch.setattr(sink_connector, "open_state", lambda *_: (former, None))
    with pytest.raises(RestError, match="of Kafka cluster former"):
        connector.alter_offsets([ConnectorOffset(given, {"kafka_offset": 7})])


def test_a_source_s_snapshots_on_demand_outlive_its_offsets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`DELETE .../offsets` forgets tables, as `icebridge offsets reset` does: with how far its signals are read gone,
    all signals of the topic would be followed once more.
    """
    file = tmp_path / "source.properties"
    file.write_text(SOURCE, "utf-8")
    rows = OffsetRows.__new__(OffsetRows)
    published = TableOffset(SnapshotOffset("u", 5), 7_000, 1, "an index").json()
    rows._name, rows._rows = "s", {"s": "snapshots and signals", "s/db.a": "{}", "s/db.b": published}
    connector = source_connector.SourceConnector(load_source([file], environ={}), {}, Lifecycle(), Mock)
    monkeypatch.setattr(rows, "_replace", lambda: None)
    monkeypatch.setattr(connector, "_rows", lambda: rows)
    assert len(connector.offsets()) == 2
    connector.alter_offsets(None)
    assert rows._rows == {"s": "snapshots and signals", "s/db.b": TableOffset(SnapshotOffset("", None), 7_000).json()}
    assert connector.offsets() == []


def test_a_topic_that_is_not_looked_at_keeps_its_offsets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`-X topics=a,b` leaves out the third one, or it is not there for a while: it goes on where it was. It would begin
    anew, at its end with `auto.offset.reset=latest`.
    """
    other = ("c", 0)
    before = KafkaOffsets("c", {"a": "a2", "b": "b2", "c": "c1"}, {A: 100, B: 100, other: 100})
    wanted = merge_offsets(before, CLUSTER, CLUSTER.beginnings, ())
    assert (wanted.offsets, wanted.topic_ids["c"]) == ({A: 0, B: 0, other: 100}, "c1")
    there = attrs.evolve(
        CLUSTER,
        topics={**CLUSTER.topics, "c": TopicInfo("c", "c1", 1)},
        beginnings={**CLUSTER.beginnings, other: 0},
        ends={**CLUSTER.ends, other: 500},
    )
    assert find_starting_offsets(wanted, {}, {}, there, "latest", ("a", "b", "c")).offsets[other] == 100
    offsets = _Offsets(one=KafkaOffsets("c", {}, {A: 100}), three=KafkaOffsets("c", {}, {other: 100}))
    kept = offsets.tables["three"]
    _reset(monkeypatch, tmp_path, offsets, {"one": KafkaOffsets("c", {}, {A: 100})}, wanted, moved={A, B})
    assert (offsets.tables["one"].position.offsets, offsets.tables["three"]) == ({A: 0}, kept)
    moved = attrs.evolve(before, cluster_id="former")
    assert merge_offsets(moved, CLUSTER, CLUSTER.beginnings, ()).offsets == {A: 0, B: 0}


def test_offsets_of_a_topic_that_was_made_again_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error by which the sink stopped names `offsets show`: a lag of 0 alone would say that all is read."""
    settings = local_sink(tmp_path, ["topics=a,b"]).batches._settings
    position = attrs.evolve(BEFORE, topic_ids={"a": "a2", "b": "b1"}, offsets={A: 100, B: 900})
    monkeypatch.setattr(sink_positions, "open_gateway", lambda _: nullcontext(None))
    monkeypatch.setattr(sink_positions, "read_state", lambda *_: SinkState(position))
    asked = Future[ClusterView]()
    asked.set_result(ClusterView(CLUSTER))
    sink_positions.show(settings, Mock(), asked)
    said = capsys.readouterr().out
    assert "topic b was deleted and made again" in said
    assert "topic a" not in said


class _SharedRows:
    """The rows of an offsets table whose file others replaced since it was read."""

    def __init__(self, own: str, now: str) -> None:
        self.connector_row, self._now, self.is_read = own, now, False

    def forget(self) -> None:
        self.connector_row = ""

    def put(self, own: str, _: Any) -> None:
        if not self.is_read:
            raise CommitRefused("the file is gone")
        self.connector_row = own

    def reload(self) -> None:
        self.connector_row, self.is_read = self._now, True


def test_a_reset_stores_its_offsets_beside_other_connectors() -> None:
    """Where a file has rows of several connectors, as after a compaction, another one's save is in the way once."""
    before = BEFORE.json().decode()
    offsets = OffsetsTable.__new__(OffsetsTable)
    offsets._name, offsets._own = "s", before
    rows: Any = _SharedRows(before, before)
    offsets._rows = rows
    with pytest.raises(CommitRefused):
        offsets.replace(KafkaOffsets("c"), {})
    offsets.replace(KafkaOffsets("c"), {})
    assert rows.connector_row == KafkaOffsets("c").json().decode()
    offsets._own, offsets._rows = before, cast("Any", _SharedRows(before, "what a sink stored meanwhile"))
    with pytest.raises(FatalError, match="s has stored others meanwhile"):
        offsets.replace(KafkaOffsets("c"), {})
