"""properties -> MaintenanceSettings: what is done to tables beside writing them, and when.

Names: those of Flink's table maintenance (`flink-maintenance.*`, taken as they are), below `iceberg.maintenance.`; for
one table below `iceberg.table.<t>.maintenance.`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.iceberg.maintenance import options
from connector.settings.iceberg.maintenance.options import OPTIONS, PREFIX
from connector.settings.iceberg.routing import ROUTE_REGEX

T = TypeVar("T")
FLINK_PREFIX, TABLE_INFIX = "flink-maintenance.", ".maintenance."


@attrs.frozen
class ConvertPolicy:
    """When equality deletes are converted, and how many bytes of them at once."""

    enabled: bool = options.CONVERT.default
    files: int = options.CONVERT_FILES.default
    records: int = options.CONVERT_RECORDS.default
    interval_s: int = options.CONVERT_INTERVAL.default
    max_bytes: int = options.CONVERT_BYTES.default


@attrs.frozen
class RewritePolicy:
    """When data files are merged, which, and into what."""

    enabled: bool = options.REWRITE.default
    commits: int = options.REWRITE_COMMITS.default
    files: int = options.REWRITE_FILES.default
    interval_s: int = options.REWRITE_INTERVAL.default
    max_bytes: int = options.REWRITE_BYTES.default
    partial_progress: bool = options.REWRITE_PARTIAL.default
    max_commits: int = options.REWRITE_MAX_COMMITS.default
    target_bytes: int = options.REWRITE_TARGET.default
    min_input_files: int = options.REWRITE_MIN_FILES.default
    min_file_bytes: int = options.REWRITE_MIN_BYTES.default
    delete_files: int = options.REWRITE_DELETE_FILES.default
    delete_ratio: float = options.REWRITE_RATIO.default
    added_bytes: int = options.REWRITE_SIZE.default


@attrs.frozen
class ManifestPolicy:
    """When manifests are merged."""

    enabled: bool = options.MANIFESTS.default
    count: int = options.MANIFEST_COUNT.default


@attrs.frozen
class ExpiryPolicy:
    """Which snapshots go, and when; an age or number of 0 is the table's own."""

    enabled: bool = options.EXPIRE.default
    commits: int = options.EXPIRE_COMMITS.default
    interval_s: int = options.EXPIRE_INTERVAL.default
    age_s: int = options.EXPIRE_AGE.default
    retain_last: int = options.EXPIRE_LAST.default
    max_reader_lag_s: int = options.EXPIRE_LAG.default
    offset_tables: tuple[str, ...] = options.EXPIRE_OFFSETS.default


@attrs.frozen
class OrphanPolicy:
    """When files are looked for that no snapshot has, and which of them go."""

    enabled: bool = options.ORPHANS.default
    min_age_s: int = options.ORPHAN_AGE.default
    interval_s: int = options.ORPHAN_INTERVAL.default
    prefix_mismatch_mode: str = options.ORPHAN_PREFIX_MODE.default


@attrs.frozen
class MaintenancePolicy:
    """What is done to one table; `enabled` says whether the sink does it: "true", "false", or "auto"."""

    enabled: str = options.ENABLED.default
    rate_limit_s: int = options.RATE_LIMIT.default
    convert: ConvertPolicy = ConvertPolicy()
    rewrite: RewritePolicy = RewritePolicy()
    manifests: ManifestPolicy = ManifestPolicy()
    expire: ExpiryPolicy = ExpiryPolicy()
    orphans: OrphanPolicy = OrphanPolicy()

    def covers(self, *, is_own: bool) -> bool:
        """Tell whether the sink maintains a table; `is_own` says that it has created it."""
        return is_own if self.enabled == "auto" else self.enabled == "true"

    def enable(self, tasks: Iterable[str]) -> MaintenancePolicy:
        """Return the same with some tasks enabled, whose names are those of the fields."""
        return attrs.evolve(self, **{task: attrs.evolve(getattr(self, task), enabled=True) for task in tasks})


@attrs.frozen
class MaintenanceSettings:
    """The policy of all tables, and of single ones by the name in their keys."""

    policy: MaintenancePolicy = MaintenancePolicy()
    policies: Mapping[str, MaintenancePolicy] = attrs.field(factory=dict)

    def of(self, *names: str) -> MaintenancePolicy:
        """Return the policy of a table that is known by these names."""
        return next((self.policies[name] for name in names if name in self.policies), self.policy)

    @property
    def in_sink(self) -> bool:
        """Whether the sink may maintain any table."""
        return any(policy.enabled != "false" for policy in (self.policy, *self.policies.values()))


def rename_entries(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the entries with Flink's names under ours; an entry keeps its key for messages."""
    renamed = dict(entries)
    for key, entry in entries.items():
        name = PREFIX + key.removeprefix(FLINK_PREFIX)
        if key.startswith(FLINK_PREFIX) and (name not in entries or entries[name].layer < entry.layer):
            renamed[name] = entry
    return {key: entry for key, entry in renamed.items() if not key.startswith(FLINK_PREFIX)}


def build(reader: ConfigReader) -> MaintenanceSettings:
    """Read the options; faults go to the reader."""
    tables = dict.fromkeys(table for table, _ in _iter_table_keys(reader))
    _check_table_keys(reader)
    return MaintenanceSettings(
        _build_policy(reader.get), {table: _build_policy(_getter_of(reader, table)) for table in tables}
    )


class _Getter(Protocol):
    """Gives the value of an option."""

    def __call__(self, option: Option[T], /) -> T:
        """Return it."""


def _getter_of(reader: ConfigReader, table: str) -> _Getter:
    def get(option: Option[T]) -> T:
        names = tuple(_table_key(table, name) for name in option.names)
        own = attrs.evolve(option, name=names[0], aliases=names[1:])
        return reader.get(option) if reader.entry(own) is None else reader.get(own)

    return get


def _table_key(table: str, name: str) -> str:
    return f"{ROUTE_REGEX.name}{table}{TABLE_INFIX}{name.removeprefix(PREFIX)}"


def _iter_table_keys(reader: ConfigReader) -> list[tuple[str, Entry]]:
    keys = [(entry.key.removeprefix(ROUTE_REGEX.name), entry) for entry in reader.members(ROUTE_REGEX)]
    return [(name.partition(TABLE_INFIX)[0], entry) for name, entry in keys if TABLE_INFIX in name]


def _check_table_keys(reader: ConfigReader) -> None:
    known = {name.removeprefix(PREFIX) for option in OPTIONS for name in option.names}
    for _, entry in _iter_table_keys(reader):
        if entry.key.partition(TABLE_INFIX)[2] not in known:
            reader.add_fault(entry, "is not a known key", f"docs/reference/options.md lists all keys below {PREFIX}")


def _build_policy(read: _Getter) -> MaintenancePolicy:
    return MaintenancePolicy(
        enabled=read(options.ENABLED),
        rate_limit_s=read(options.RATE_LIMIT),
        convert=ConvertPolicy(
            read(options.CONVERT),
            read(options.CONVERT_FILES),
            read(options.CONVERT_RECORDS),
            read(options.CONVERT_INTERVAL),
            read(options.CONVERT_BYTES),
        ),
        rewrite=RewritePolicy(
            read(options.REWRITE),
            read(options.REWRITE_COMMITS),
            read(options.REWRITE_FILES),
            read(options.REWRITE_INTERVAL),
            read(options.REWRITE_BYTES),
            read(options.REWRITE_PARTIAL),
            read(options.REWRITE_MAX_COMMITS),
            read(options.REWRITE_TARGET),
            read(options.REWRITE_MIN_FILES),
            read(options.REWRITE_MIN_BYTES),
            read(options.REWRITE_DELETE_FILES),
            read(options.REWRITE_RATIO),
            read(options.REWRITE_SIZE),
        ),
        manifests=ManifestPolicy(read(options.MANIFESTS), read(options.MANIFEST_COUNT)),
        expire=ExpiryPolicy(
            read(options.EXPIRE),
            read(options.EXPIRE_COMMITS),
            read(options.EXPIRE_INTERVAL),
            read(options.EXPIRE_AGE),
            read(options.EXPIRE_LAST),
            read(options.EXPIRE_LAG),
            read(options.EXPIRE_OFFSETS),
        ),
        orphans=OrphanPolicy(
            read(options.ORPHANS),
            read(options.ORPHAN_AGE),
            read(options.ORPHAN_INTERVAL),
            read(options.ORPHAN_PREFIX_MODE),
        ),
    )
