"""The options of maintenance, each declared once: of all tables, below `iceberg.maintenance.`.

Names: those of Flink's table maintenance; `settings.iceberg.maintenance` reads them, of single tables too.
"""

from __future__ import annotations

from connector.settings.configdef.option import Option
from connector.settings.configdef.value_types import BOOLEAN, LIST, RATIO, one_of, whole_number

PREFIX = "iceberg.maintenance."
_MIB = 1024**2
_COUNT = whole_number(1)
_NONE_OR_COUNT = whole_number(0)
_DAY_S = 24 * 3600

ENABLED = Option(
    name=f"{PREFIX}enabled",
    kind=BOOLEAN,
    default=False,
    importance="high",
    doc="Maintain tables inside of the sink, beside its batches.",
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
    doc="Commit groups of files as they are ready where much is read at once, or where one commit of all has failed.",
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
