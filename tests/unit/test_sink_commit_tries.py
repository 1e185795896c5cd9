"""A commit that another writer refused -> tried again, unless a sink of the same name has committed meanwhile."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import attrs
import pyarrow as pa
import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from connector.errors import CommitRefused, FatalError, OutdatedFiles
from connector.iceberg.commit.commit import PendingCommit
from connector.iceberg.commit.commit_summary import COMMIT_ID, CONNECTOR_NAME
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit, read_last_commit
from connector.iceberg.keys.key_bounds import KeyBounds
from connector.sink.destinations.iceberg import committer
from tests.unit.sink_plans import upsert


@attrs.define
class Targets:
    """The one table of a sink: what is known of it, and what it says once it is read again."""

    then: str
    drift: dict[str, set[str]] = attrs.field(factory=dict)
    stored: LastCommit = LastCommit(KafkaOffsets("c"), "ours")

    @property
    def table(self) -> Any:
        told = Summary(Operation.APPEND, **{CONNECTOR_NAME: "sink", COMMIT_ID: self.then})
        made = Snapshot(**{"snapshot-id": 1, "timestamp-ms": 0, "manifest-list": "m", "summary": told})
        return SimpleNamespace(name="d.t", ancestors=lambda: iter([made]), delete_file=None)

    def __getitem__(self, _: str) -> Any:
        return SimpleNamespace(table=self.table, stored=self.stored, base=1, upsert=True)

    def detect_expired_reads(self, *_: str) -> AbstractContextManager[None]:
        return nullcontext()

    def refresh(self, _: str) -> None:
        self.stored = read_last_commit(self.table, "sink") or LastCommit()


@pytest.mark.parametrize(("then", "error", "tries"), [("ours", CommitRefused, 3), ("theirs", FatalError, 1)])
def test_a_second_sink_that_commits_between_two_tries_is_noticed(
    monkeypatch: pytest.MonkeyPatch, then: str, error: type[Exception], tries: int
) -> None:
    """Behind other writers a commit is tried again; behind a sink of the same name that has committed what these files
    may have, it is not: older rows could replace newer ones.
    """
    asked = list[str | None]()

    def refuse(_: object, pending: PendingCommit, name: str) -> None:
        asked.append(pending.expected.commit_id)
        raise CommitRefused(f"{name} came second")

    monkeypatch.setattr(committer, "commit_files", refuse)
    targets: Any = Targets(then)
    own = committer.IcebergCommitter(None, targets, "sink")  # type: ignore[arg-type]
    table, files = upsert(0, {"id": pa.int64()}, ("id",)), [SimpleNamespace(path="f")]
    with pytest.raises(error):
        own.commit_table_files(table, "t", files, None, KafkaOffsets("c"), attempts=3)  # type: ignore[arg-type]
    assert asked == ["ours"] * tries


def test_files_that_do_not_fit_their_table_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose files lack columns that the table has by now is not tried again with the same files."""
    schemas = list[str | None]()

    def refuse(_: object, pending: PendingCommit, name: str) -> None:
        schemas.append(pending.schema_json)
        raise OutdatedFiles(f"{name} has old files")

    monkeypatch.setattr(committer, "commit_files", refuse)
    own = committer.IcebergCommitter(None, Targets("ours"), "sink")  # type: ignore[arg-type]
    table, files = upsert(0, {"id": pa.int64()}, ("id",)), [SimpleNamespace(path="f")]
    with pytest.raises(OutdatedFiles):
        own.commit_table_files(table, "t", files, None, KafkaOffsets("c"), attempts=3)  # type: ignore[arg-type]
    assert schemas == [table.layout.schema_json]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("error", [CommitRefused, OutdatedFiles])
def test_keys_stay_known_behind_others_who_alter_a_table(error: type[CommitRefused], known: bool) -> None:
    """Behind another writer's rows every key gets a delete; one who adds a column brings no rows."""
    targets = MagicMock()
    targets["t"].known_keys = KeyBounds(is_complete=known)
    committer.IcebergCommitter(None, targets, "sink")._refresh_refused("t", error("refused"))  # type: ignore[arg-type]
    targets.refresh.assert_called_once_with("t", alone=known and error is OutdatedFiles)
