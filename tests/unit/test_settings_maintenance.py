"""Options of maintenance: Flink's names, tables of their own, defaults, faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from connector.errors import ConfigError
from connector.settings import SinkSettings, load

pytestmark = pytest.mark.unit

BASE = {
    "bootstrap.servers": "h:1",
    "topics": "t",
    "debezium.sink.iceberg.type": "hadoop",
    "debezium.sink.iceberg.warehouse": "/tmp/w",
}


def _load(tmp_path: Path, lines: dict[str, str]) -> SinkSettings:
    file = tmp_path / "sink.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in {**BASE, **lines}.items()))
    return load([file])


def test_a_table_has_its_own_policy_over_the_one_of_all(tmp_path: Path) -> None:
    """Options of one table win over those of all, by its name with or without namespace; the rest is the same."""
    settings = _load(
        tmp_path,
        {
            "iceberg.maintenance.rewrite.max-bytes": "7",
            "iceberg.maintenance.rewrite.min-input-files": "3",
            "iceberg.table.db.orders.maintenance.rewrite.max-bytes": "9",
            "iceberg.table.db.orders.maintenance.enabled": "true",
        },
    ).table.maintenance
    assert settings.in_sink
    assert settings.of("orders", "db.orders").rewrite.max_bytes == 9
    assert settings.of("orders", "db.orders").rewrite.min_input_files == 3
    assert settings.of("others", "db.others").rewrite.max_bytes == 7
    assert settings.of("orders", "db.orders").covers(is_own=False)
    assert not settings.of("others", "db.others").covers(is_own=False)


@pytest.mark.parametrize(
    ("told", "own", "others"), [("auto", True, False), ("true", True, True), ("False", False, False)]
)
def test_tables_of_its_own_are_maintained_unless_it_is_told_otherwise(
    tmp_path: Path, told: str, own: bool, others: bool
) -> None:
    """With nothing configured (auto) the sink maintains the tables that it has created, and no others."""
    settings = _load(tmp_path, {} if told == "auto" else {"iceberg.maintenance.enabled": told}).table.maintenance
    assert (settings.policy.covers(is_own=True), settings.policy.covers(is_own=False)) == (own, others)
    assert settings.in_sink == own


def test_flinks_names_are_taken(tmp_path: Path) -> None:
    """A file with Flink's keys means the same here, in both spellings that Flink has had."""
    settings = _load(
        tmp_path,
        {
            "flink-maintenance.rewrite.schedule.data-file-count": "11",
            "flink-maintenance.rewrite.partial-progress-max-commits": "4",
            "flink-maintenance.expire-snapshots.retain-last": "5",
            "flink-maintenance.rewrite.min-file-size-bytes": "6",
            "flink-maintenance.rewrite.schedule.data-file-size": "7",
        },
    ).table.maintenance.policy
    assert (settings.rewrite.files, settings.rewrite.max_commits, settings.expire.retain_last) == (11, 4, 5)
    assert (settings.rewrite.min_file_bytes, settings.rewrite.min_input_files) == (6, 0)
    assert settings.rewrite.added_bytes == 7
    assert settings.enabled == "auto"


def test_keys_of_flinks_job_are_noted(tmp_path: Path) -> None:
    """What steers Flink's job, its locks among it, is named in a note: there is one writer here."""
    given = {"flink-maintenance.lock.type": "jdbc", "flink-maintenance.parallelism": "2"}
    (note,) = _load(tmp_path, given).notes
    assert note.endswith("have no effect here: flink-maintenance.lock.type, flink-maintenance.parallelism")


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("iceberg.table.t.maintenance.rewrite.max-byte", "1", "is not a known key"),
        ("iceberg.table.t.maintenance.rewrite.max-bytes", "many", "is not a whole number"),
        ("iceberg.maintenance.delete-orphan-files.min-age-seconds", "60", "is outside"),
        ("flink-maintenance.rewrite.max-bites", "1", "is not a known key"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, key: str, value: str, wanted: str) -> None:
    """A name that is none, a value that is none, and orphans of the last day are faults."""
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, {key: value})
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rewrite.delete-ratio-threshold", "0"),
        ("rewrite.delete-file-threshold", "2147483648"),
        ("rewrite.min-input-files", "2147483648"),
        ("rewrite.partial-progress.max-commits", "2147483648"),
        ("expire-snapshots.retain-last", "2147483648"),
    ],
)
def test_what_iceberg_refuses_is_refused_at_the_start(tmp_path: Path, key: str, value: str) -> None:
    """Values that each rewrite or expiry would fail by are faults of the configuration, of all tables and of one."""
    for prefix in ("iceberg.maintenance.", "iceberg.table.db.orders.maintenance."):
        with pytest.raises(ConfigError, match=key):
            _load(tmp_path, {f"{prefix}{key}": value})
