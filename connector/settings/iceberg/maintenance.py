"""properties -> MaintenanceSettings: what is done to tables beside writing them, and when.

Names: those of Flink's table maintenance (`flink-maintenance.*`, taken as they are), below `iceberg.maintenance.`; for
one table below `iceberg.table.<t>.maintenance.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, LIST, RATIO, one_of, whole_number
from connector.settings.iceberg.routing import ROUTE_REGEX

T = TypeVar("T")
PREFIX, FLINK_PREFIX, TABLE_INFIX = "iceberg.maintenance.", "flink-maintenance.", ".maintenance."
_MIB = 1024**2
_COUNT = whole_number(1)
_NONE_OR_COUNT = whole_number(0)
_DAY_S = 24 * 3600

ENABLED = Option(
    name=f"{PREFIX}enabled",
    kind=BOOLEAN,
    default=False,
    importance="high",
    doc="Maintain tables inside of the sink, between its batches.",
)
RATE_LIMIT = Option(
    name=f"{PREFIX}rate-limit-seconds",
    kind=_NONE_OR_COUNT,
    default=60,
    importance="low",
    doc="Least time between two looks at a table.",
    aliases=(f"{PREFIX}rate-limit-second",),
)
CONVERT = Option(
    name=f"{PREFIX}convert-equality-deletes.enabled",
    kind=BOOLEAN,
    default=True,
    importance="high",
    doc="Turn equality deletes into deletion vectors (format 3) or position deletes (format 2).",
)
CONVERT_FILES = Option(
    name=f"{PREFIX}convert-equality-deletes.schedule.eq-delete-file-count",
    kind=_COUNT,
    default=50,
    importance="medium",
    doc="Convert when a table has so many equality delete files.",
)
CONVERT_RECORDS = Option(
    name=f"{PREFIX}convert-equality-deletes.schedule.eq-delete-record-count",
    kind=_COUNT,
    default=1_000_000,
    importance="medium",
    doc="Convert when they have so many keys.",
)
CONVERT_INTERVAL = Option(
    name=f"{PREFIX}convert-equality-deletes.schedule.interval-second",
    kind=_COUNT,
    default=600,
    importance="medium",
    doc="Convert when the last conversion is so long ago and there are equality deletes.",
)
CONVERT_BYTES = Option(
    name=f"{PREFIX}convert-equality-deletes.max-bytes",
    kind=_COUNT,
    default=256 * _MIB,
    importance="low",
    doc="Bytes of equality deletes that are converted at once, the oldest first.",
)
REWRITE = Option(
    name=f"{PREFIX}rewrite.enabled",
    kind=BOOLEAN,
    default=True,
    importance="high",
    doc="Merge small data files, and write files anew of which many rows are deleted.",
)
REWRITE_COMMITS = Option(
    name=f"{PREFIX}rewrite.schedule.commit-count",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="low",
    doc="Rewrite after so many commits; 0: not by commits.",
)
REWRITE_FILES = Option(
    name=f"{PREFIX}rewrite.schedule.data-file-count",
    kind=_COUNT,
    default=100,
    importance="medium",
    doc="Rewrite when so many data files came since the last time.",
)
REWRITE_INTERVAL = Option(
    name=f"{PREFIX}rewrite.schedule.interval-second",
    kind=_COUNT,
    default=3600,
    importance="medium",
    doc="Rewrite when the last time is so long ago and there were commits since.",
)
REWRITE_BYTES = Option(
    name=f"{PREFIX}rewrite.max-bytes",
    kind=_COUNT,
    default=1024 * _MIB,
    importance="medium",
    doc="Bytes that are read at once, small files first.",
)
REWRITE_PARTIAL = Option(
    name=f"{PREFIX}rewrite.partial-progress.enabled",
    kind=BOOLEAN,
    default=True,
    importance="low",
    doc="Commit groups of files as they are ready.",
    aliases=(f"{PREFIX}rewrite.partial-progress-enabled",),
)
REWRITE_MAX_COMMITS = Option(
    name=f"{PREFIX}rewrite.partial-progress.max-commits",
    kind=_COUNT,
    default=10,
    importance="low",
    doc="In so many commits at most.",
    aliases=(f"{PREFIX}rewrite.partial-progress-max-commits",),
)
REWRITE_TARGET = Option(
    name=f"{PREFIX}rewrite.target-file-size-bytes",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="medium",
    doc="Size of the files that are made; 0: the table's write.target-file-size-bytes.",
)
REWRITE_MIN_FILES = Option(
    name=f"{PREFIX}rewrite.min-input-files",
    kind=_COUNT,
    default=5,
    importance="low",
    doc="Merge when a partition has so many small files.",
)
REWRITE_DELETE_FILES = Option(
    name=f"{PREFIX}rewrite.delete-file-threshold",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="low",
    doc="Write a file anew that has so many delete files; 0: not for their number.",
)
REWRITE_RATIO = Option(
    name=f"{PREFIX}rewrite.delete-ratio-threshold",
    kind=RATIO,
    default=0.3,
    importance="medium",
    doc="Write a file anew of whose rows this share is deleted.",
)
MANIFESTS = Option(
    name=f"{PREFIX}rewrite-manifests.enabled",
    kind=BOOLEAN,
    default=True,
    importance="low",
    doc="Merge small manifests.",
)
MANIFEST_COUNT = Option(
    name=f"{PREFIX}rewrite-manifests.schedule.manifest-count",
    kind=_COUNT,
    default=100,
    importance="low",
    doc="Merge when there are so many data manifests.",
)
EXPIRE = Option(
    name=f"{PREFIX}expire-snapshots.enabled",
    kind=BOOLEAN,
    default=True,
    importance="high",
    doc="Expire old snapshots, never those that a source of icebridge still has to read.",
)
EXPIRE_COMMITS = Option(
    name=f"{PREFIX}expire-snapshots.schedule.commit-count",
    kind=_COUNT,
    default=100,
    importance="low",
    doc="Expire when so many snapshots may go.",
)
EXPIRE_INTERVAL = Option(
    name=f"{PREFIX}expire-snapshots.schedule.interval-second",
    kind=_COUNT,
    default=3600,
    importance="low",
    doc="Expire when the oldest snapshot that may go is older than it need be by so much.",
)
EXPIRE_AGE = Option(
    name=f"{PREFIX}expire-snapshots.max-snapshot-age-seconds",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="medium",
    doc="Keep snapshots for so long; 0: as the table's history.expire.max-snapshot-age-ms says (5 days).",
)
EXPIRE_LAST = Option(
    name=f"{PREFIX}expire-snapshots.retain-last",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="medium",
    doc="Keep so many snapshots in any case; 0: as the table's history.expire.min-snapshots-to-keep says (1).",
)
EXPIRE_LAG = Option(
    name=f"{PREFIX}expire-snapshots.max-reader-lag-seconds",
    kind=_COUNT,
    default=_DAY_S,
    importance="medium",
    doc="Warn when a source holds up expiry for longer; its snapshots stay all the same.",
)
EXPIRE_OFFSETS = Option(
    name=f"{PREFIX}expire-snapshots.offset-tables",
    kind=LIST,
    default=(),
    importance="medium",
    doc="Further tables with offsets of sources that read these tables; the sink's own is always looked at.",
)
ORPHANS = Option(
    name=f"{PREFIX}delete-orphan-files.enabled",
    kind=BOOLEAN,
    default=False,
    importance="medium",
    doc="Delete files below the table's location that no snapshot has.",
)
ORPHAN_AGE = Option(
    name=f"{PREFIX}delete-orphan-files.min-age-seconds",
    kind=whole_number(_DAY_S),
    default=3 * _DAY_S,
    importance="medium",
    doc="Only such files as are older.",
)
ORPHAN_INTERVAL = Option(
    name=f"{PREFIX}delete-orphan-files.schedule.interval-second",
    kind=_COUNT,
    default=_DAY_S,
    importance="low",
    doc="Look for them so often.",
)
ORPHAN_PREFIX_MODE = Option(
    name=f"{PREFIX}delete-orphan-files.prefix-mismatch-mode",
    kind=one_of("ERROR", "IGNORE", "DELETE", any_case=True),
    default="ERROR",
    importance="low",
    doc="What to do when paths of the same file differ in scheme or authority.",
)
OPTIONS: tuple[Option[object], ...] = (
    ENABLED,
    RATE_LIMIT,
    CONVERT,
    CONVERT_FILES,
    CONVERT_RECORDS,
    CONVERT_INTERVAL,
    CONVERT_BYTES,
    REWRITE,
    REWRITE_COMMITS,
    REWRITE_FILES,
    REWRITE_INTERVAL,
    REWRITE_BYTES,
    REWRITE_PARTIAL,
    REWRITE_MAX_COMMITS,
    REWRITE_TARGET,
    REWRITE_MIN_FILES,
    REWRITE_DELETE_FILES,
    REWRITE_RATIO,
    MANIFESTS,
    MANIFEST_COUNT,
    EXPIRE,
    EXPIRE_COMMITS,
    EXPIRE_INTERVAL,
    EXPIRE_AGE,
    EXPIRE_LAST,
    EXPIRE_LAG,
    EXPIRE_OFFSETS,
    ORPHANS,
    ORPHAN_AGE,
    ORPHAN_INTERVAL,
    ORPHAN_PREFIX_MODE,
)


@attrs.frozen
class ConvertPolicy:
    """When equality deletes are converted, and how many bytes of them at once."""

    enabled: bool = CONVERT.default
    files: int = CONVERT_FILES.default
    records: int = CONVERT_RECORDS.default
    interval_s: int = CONVERT_INTERVAL.default
    max_bytes: int = CONVERT_BYTES.default


@attrs.frozen
class RewritePolicy:
    """When data files are merged, which, and into what."""

    enabled: bool = REWRITE.default
    commits: int = REWRITE_COMMITS.default
    files: int = REWRITE_FILES.default
    interval_s: int = REWRITE_INTERVAL.default
    max_bytes: int = REWRITE_BYTES.default
    partial_progress: bool = REWRITE_PARTIAL.default
    max_commits: int = REWRITE_MAX_COMMITS.default
    target_bytes: int = REWRITE_TARGET.default
    min_input_files: int = REWRITE_MIN_FILES.default
    delete_files: int = REWRITE_DELETE_FILES.default
    delete_ratio: float = REWRITE_RATIO.default


@attrs.frozen
class ManifestPolicy:
    """When manifests are merged."""

    enabled: bool = MANIFESTS.default
    count: int = MANIFEST_COUNT.default


@attrs.frozen
class ExpiryPolicy:
    """Which snapshots go, and when; an age or number of 0 is the table's own."""

    enabled: bool = EXPIRE.default
    commits: int = EXPIRE_COMMITS.default
    interval_s: int = EXPIRE_INTERVAL.default
    age_s: int = EXPIRE_AGE.default
    retain_last: int = EXPIRE_LAST.default
    max_reader_lag_s: int = EXPIRE_LAG.default
    offset_tables: tuple[str, ...] = EXPIRE_OFFSETS.default


@attrs.frozen
class OrphanPolicy:
    """When files are looked for that no snapshot has, and which of them go."""

    enabled: bool = ORPHANS.default
    min_age_s: int = ORPHAN_AGE.default
    interval_s: int = ORPHAN_INTERVAL.default
    prefix_mismatch_mode: str = ORPHAN_PREFIX_MODE.default


@attrs.frozen
class MaintenancePolicy:
    """What is done to one table."""

    enabled: bool = ENABLED.default
    rate_limit_s: int = RATE_LIMIT.default
    convert: ConvertPolicy = ConvertPolicy()
    rewrite: RewritePolicy = RewritePolicy()
    manifests: ManifestPolicy = ManifestPolicy()
    expire: ExpiryPolicy = ExpiryPolicy()
    orphans: OrphanPolicy = OrphanPolicy()


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
        """Whether the sink maintains any table."""
        return any(policy.enabled for policy in (self.policy, *self.policies.values()))


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
    found = [(entry.key.removeprefix(ROUTE_REGEX.name), entry) for entry in reader.members(ROUTE_REGEX)]
    return [(name.partition(TABLE_INFIX)[0], entry) for name, entry in found if TABLE_INFIX in name]


def _check_table_keys(reader: ConfigReader) -> None:
    known = {name.removeprefix(PREFIX) for option in OPTIONS for name in option.names}
    for _, entry in _iter_table_keys(reader):
        if entry.key.partition(TABLE_INFIX)[2] not in known:
            reader.add_fault(entry, "is not a known key", f"docs/reference/options.md lists all keys below {PREFIX}")


def _build_policy(read: _Getter) -> MaintenancePolicy:
    return MaintenancePolicy(
        enabled=read(ENABLED),
        rate_limit_s=read(RATE_LIMIT),
        convert=ConvertPolicy(
            read(CONVERT), read(CONVERT_FILES), read(CONVERT_RECORDS), read(CONVERT_INTERVAL), read(CONVERT_BYTES)
        ),
        rewrite=RewritePolicy(
            read(REWRITE),
            read(REWRITE_COMMITS),
            read(REWRITE_FILES),
            read(REWRITE_INTERVAL),
            read(REWRITE_BYTES),
            read(REWRITE_PARTIAL),
            read(REWRITE_MAX_COMMITS),
            read(REWRITE_TARGET),
            read(REWRITE_MIN_FILES),
            read(REWRITE_DELETE_FILES),
            read(REWRITE_RATIO),
        ),
        manifests=ManifestPolicy(read(MANIFESTS), read(MANIFEST_COUNT)),
        expire=ExpiryPolicy(
            read(EXPIRE),
            read(EXPIRE_COMMITS),
            read(EXPIRE_INTERVAL),
            read(EXPIRE_AGE),
            read(EXPIRE_LAST),
            read(EXPIRE_LAG),
            read(EXPIRE_OFFSETS),
        ),
        orphans=OrphanPolicy(read(ORPHANS), read(ORPHAN_AGE), read(ORPHAN_INTERVAL), read(ORPHAN_PREFIX_MODE)),
    )
