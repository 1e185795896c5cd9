"""Keys below `iceberg.maintenance.` -> the options of maintenance, each declared once, for all tables.

Names: those of Flink's table maintenance; `settings.iceberg.maintenance` reads them, of single tables too.
"""

from __future__ import annotations

from connector.settings.configdef.option import Option
from connector.settings.configdef.unknown_keys import ForeignKeys
from connector.settings.configdef.value_types import BOOLEAN, LIST, POSITIVE_RATIO, one_of, whole_number

PREFIX = "iceberg.maintenance."
_MIB = 1024**2
_COUNT = whole_number(1)
_NONE_OR_COUNT = whole_number(0)
_INT, _NONE_OR_INT = whole_number(1, 2**31 - 1), whole_number(0, 2**31 - 1)
"""What Iceberg reads as an `int`."""
_DAY_S = 24 * 3600

ENABLED = Option(
    name=f"{PREFIX}enabled",
    kind=one_of("auto", "true", "false", any_case=True),
    default="auto",
    importance="high",
    doc="Let the sink maintain tables in the background: all (true), none (false), or those that it created (auto).",
)
RATE_LIMIT = Option(
    name=f"{PREFIX}rate-limit-seconds",
    kind=_NONE_OR_COUNT,
    default=60,
    importance="low",
    doc="Minimum time between two checks of a table.",
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
    doc="Convert when a table has this many equality delete files.",
)
CONVERT_RECORDS = Option(
    name=f"{PREFIX}convert-equality-deletes.schedule.eq-delete-record-count",
    kind=_COUNT,
    default=1_000_000,
    importance="medium",
    doc="Convert when these files have this many keys.",
)
CONVERT_INTERVAL = Option(
    name=f"{PREFIX}convert-equality-deletes.schedule.interval-second",
    kind=_COUNT,
    default=600,
    importance="medium",
    doc="Convert when there are equality deletes and this time has passed since the last conversion.",
)
CONVERT_BYTES = Option(
    name=f"{PREFIX}convert-equality-deletes.max-bytes",
    kind=_COUNT,
    default=256 * _MIB,
    importance="low",
    doc="Bytes of equality deletes that are converted at a time, the oldest first.",
)
REWRITE = Option(
    name=f"{PREFIX}rewrite.enabled",
    kind=BOOLEAN,
    default=True,
    importance="high",
    doc="Merge small data files, and rewrite files with many deleted rows.",
)
REWRITE_COMMITS = Option(
    name=f"{PREFIX}rewrite.schedule.commit-count",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="low",
    doc="Rewrite after this many commits; 0: regardless of commits.",
)
REWRITE_FILES = Option(
    name=f"{PREFIX}rewrite.schedule.data-file-count",
    kind=_COUNT,
    default=100,
    importance="medium",
    doc="Rewrite when this many data files were added since the last rewrite.",
)
REWRITE_SIZE = Option(
    name=f"{PREFIX}rewrite.schedule.data-file-size",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="low",
    doc="Rewrite when files of this many bytes were added since the last rewrite; 0: regardless of bytes.",
)
REWRITE_INTERVAL = Option(
    name=f"{PREFIX}rewrite.schedule.interval-second",
    kind=_COUNT,
    default=3600,
    importance="medium",
    doc="Rewrite when there were commits and this time has passed since the last rewrite.",
)
REWRITE_BYTES = Option(
    name=f"{PREFIX}rewrite.max-bytes",
    kind=_COUNT,
    default=1024 * _MIB,
    importance="medium",
    doc="Bytes of data that are rewritten at a time, small files first.",
)
REWRITE_PARTIAL = Option(
    name=f"{PREFIX}rewrite.partial-progress.enabled",
    kind=BOOLEAN,
    default=True,
    importance="low",
    doc="Commit groups of files when they are ready, if there is much to rewrite or a single commit has failed.",
    aliases=(f"{PREFIX}rewrite.partial-progress-enabled",),
)
REWRITE_MAX_COMMITS = Option(
    name=f"{PREFIX}rewrite.partial-progress.max-commits",
    kind=_INT,
    default=10,
    importance="low",
    doc="Maximum number of such commits.",
    aliases=(f"{PREFIX}rewrite.partial-progress-max-commits",),
)
REWRITE_TARGET = Option(
    name=f"{PREFIX}rewrite.target-file-size-bytes",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="medium",
    doc="Size of the new files; 0: the table's write.target-file-size-bytes.",
)
REWRITE_MIN_FILES = Option(
    name=f"{PREFIX}rewrite.min-input-files",
    kind=_NONE_OR_INT,
    default=0,
    importance="low",
    doc="Merge when a partition has this many small files, of whatever sizes; 0: 5 of about the same size.",
)
REWRITE_MIN_BYTES = Option(
    name=f"{PREFIX}rewrite.min-file-size-bytes",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="low",
    doc="Files below are small, and merged together; 0: below half the target size, with those of about the same size.",
)
REWRITE_DELETE_FILES = Option(
    name=f"{PREFIX}rewrite.delete-file-threshold",
    kind=_NONE_OR_INT,
    default=0,
    importance="low",
    doc="Rewrite a data file with at least this many delete files; 0: never because of their number.",
)
REWRITE_RATIO = Option(
    name=f"{PREFIX}rewrite.delete-ratio-threshold",
    kind=POSITIVE_RATIO,
    default=0.3,
    importance="medium",
    doc="Rewrite a data file if at least this share of its rows is deleted.",
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
    doc="Merge small manifests after this many commits, each of which makes some.",
)
EXPIRE = Option(
    name=f"{PREFIX}expire-snapshots.enabled",
    kind=BOOLEAN,
    default=True,
    importance="high",
    doc="Expire old snapshots, except those that an icebridge source still has to read.",
)
EXPIRE_COMMITS = Option(
    name=f"{PREFIX}expire-snapshots.schedule.commit-count",
    kind=_COUNT,
    default=100,
    importance="low",
    doc="Expire when this many snapshots can be removed.",
)
EXPIRE_INTERVAL = Option(
    name=f"{PREFIX}expire-snapshots.schedule.interval-second",
    kind=_COUNT,
    default=3600,
    importance="low",
    doc="Expire when the oldest snapshot that can be removed is overdue by this time.",
)
EXPIRE_AGE = Option(
    name=f"{PREFIX}expire-snapshots.max-snapshot-age-seconds",
    kind=_NONE_OR_COUNT,
    default=0,
    importance="medium",
    doc="How long snapshots are kept; 0: the table's history.expire.max-snapshot-age-ms (5 days).",
)
EXPIRE_LAST = Option(
    name=f"{PREFIX}expire-snapshots.retain-last",
    kind=_NONE_OR_INT,
    default=0,
    importance="medium",
    doc="Number of snapshots to keep in any case; 0: the table's history.expire.min-snapshots-to-keep (1).",
)
EXPIRE_LAG = Option(
    name=f"{PREFIX}expire-snapshots.max-reader-lag-seconds",
    kind=_COUNT,
    default=_DAY_S,
    importance="medium",
    doc="Warn when a source delays expiry for longer than this; its snapshots are still kept.",
)
EXPIRE_OFFSETS = Option(
    name=f"{PREFIX}expire-snapshots.offset-tables",
    kind=LIST,
    default=(),
    importance="medium",
    doc="More offsets tables of sources that read these tables; the sink's own is always used.",
)
ORPHANS = Option(
    name=f"{PREFIX}delete-orphan-files.enabled",
    kind=BOOLEAN,
    default=False,
    importance="medium",
    doc="Delete files below the table's location that no snapshot needs.",
)
ORPHAN_AGE = Option(
    name=f"{PREFIX}delete-orphan-files.min-age-seconds",
    kind=whole_number(_DAY_S),
    default=3 * _DAY_S,
    importance="medium",
    doc="Delete only files that are older than this.",
)
ORPHAN_INTERVAL = Option(
    name=f"{PREFIX}delete-orphan-files.schedule.interval-second",
    kind=_COUNT,
    default=_DAY_S,
    importance="low",
    doc="Minimum time between two searches for such files.",
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
    REWRITE_SIZE,
    REWRITE_INTERVAL,
    REWRITE_BYTES,
    REWRITE_PARTIAL,
    REWRITE_MAX_COMMITS,
    REWRITE_TARGET,
    REWRITE_MIN_FILES,
    REWRITE_MIN_BYTES,
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
FOREIGN_KEYS = ForeignKeys(
    "these keys of Flink's table maintenance steer its job and have no effect here",
    frozenset(f"{PREFIX}{key}" for key in ("lock-check-delay-seconds", "parallelism", "slot-sharing-group")),
    (f"{PREFIX}lock.",),
)
