"""properties -> WriteModeSettings: how changes are written into tables, and on which branch.

Branches have Iceberg Kafka Connect's names. Iceberg's own `write.{delete,update,merge}.mode` tell engines what to do
and know no equality deletes, so the mode has a name of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import TEXT, one_of
from connector.settings.iceberg.routing import ROUTE_REGEX


@attrs.frozen
class DeclaredWriteMode:
    """A write mode as the options have it; what it does is in the sink (`destinations.iceberg.write_modes`)."""

    replaces_rows: bool = True
    note: str = ""


DECLARED_MODES: Mapping[str, DeclaredWriteMode] = {
    "equality-delete": DeclaredWriteMode(),
    "position-delete": DeclaredWriteMode(note="v3: deletion vectors"),
    "copy-on-write": DeclaredWriteMode(),
    "append": DeclaredWriteMode(replaces_rows=False),
}
"""Every write mode by name, in the order of the documentation. The first is the default."""

DEFAULT_MODE = next(iter(DECLARED_MODES))
APPEND_MODE = next(name for name, mode in DECLARED_MODES.items() if not mode.replaces_rows)
"""The mode of `upsert=false`, and of tables without a key."""
MAIN_BRANCH = "main"


def _list_modes(*, replaces_rows: bool) -> str:
    modes = {name: mode for name, mode in DECLARED_MODES.items() if mode.replaces_rows is replaces_rows}
    return ", ".join(f"{name} ({mode.note})" if mode.note else name for name, mode in modes.items())


MODE = Option(
    name="debezium.sink.iceberg.write-mode",
    kind=one_of(*DECLARED_MODES),
    default=DEFAULT_MODE,
    importance="high",
    doc=f"How rows are replaced: {_list_modes(replaces_rows=True)}; or {_list_modes(replaces_rows=False)}.",
)
BRANCH = Option(
    name="iceberg.tables.default-commit-branch",
    kind=TEXT,
    default=MAIN_BRANCH,
    importance="medium",
    doc="Branch to commit to. A table that has rows must have it; a new table gets it with the first commit.",
)
SCD_TYPE = Option(
    name="debezium.sink.iceberg.scd-type",
    kind=one_of("1", "2"),
    default="1",
    importance="medium",
    doc="1: keep the latest row per key; 2: keep every version, with valid_from, valid_to and is_current.",
)
OPTIONS: tuple[Option[object], ...] = (MODE, SCD_TYPE, BRANCH)
MODE_SUFFIX, SCD_TYPE_SUFFIX, BRANCH_SUFFIX = SUFFIXES = (".write-mode", ".scd-type", ".commit-branch")
_WAP = ("spark.wap.id", "spark.wap.branch")


@attrs.frozen
class WriteModeSettings:
    """Write mode, kind of history and branch of every table, and of single ones by the name in their keys."""

    mode: str = DEFAULT_MODE
    branch: str = MAIN_BRANCH
    scd_type: str = "1"
    modes: Mapping[str, str] = attrs.field(factory=dict)
    branches: Mapping[str, str] = attrs.field(factory=dict)
    scd_types: Mapping[str, str] = attrs.field(factory=dict)

    def mode_of(self, *names: str) -> str:
        """The mode of a table that is known by these names."""
        return next((self.modes[name] for name in names if name in self.modes), self.mode)

    def keeps_history(self, *names: str) -> bool:
        """Whether a table that is known by these names has every version of a row."""
        return next((self.scd_types[name] for name in names if name in self.scd_types), self.scd_type) == "2"

    def branch_of(self, *names: str) -> str:
        """The branch of a table that is known by these names."""
        return next((self.branches[name] for name in names if name in self.branches), self.branch)

    @property
    def replaces(self) -> bool:
        """Whether any table keeps one row per key."""
        return any(DECLARED_MODES[mode].replaces_rows for mode in (self.mode, *self.modes.values()))


def build(reader: ConfigReader, upsert: Option[bool]) -> WriteModeSettings:
    """Read how changes are written; faults go to the reader.

    Without a mode `upsert` says whether tables are appended to.
    """
    by_mode, by_upsert = reader.entry(MODE), reader.entry(upsert)
    mode = reader.get(MODE) if by_mode or reader.get(upsert) else APPEND_MODE
    if by_mode and by_upsert and by_upsert.layer >= 0 and reader.get(upsert) != DECLARED_MODES[mode].replaces_rows:
        value = str(reader.get(upsert)).lower()
        reader.add_fault(by_mode, f"{upsert.name}={value} contradicts it", "keep one of them")
    for key in _WAP:
        if key in reader.entries:
            what = "is not supported: each batch is a separate commit on the configured branch"
            reader.add_fault(
                reader.entries[key], what, f"write to a branch: {BRANCH.name}, and publish it when audited"
            )
    modes = _read_by_table(reader, MODE_SUFFIX, MODE)
    branches, types = _read_by_table(reader, BRANCH_SUFFIX, BRANCH), _read_by_table(reader, SCD_TYPE_SUFFIX, SCD_TYPE)
    entry = reader.entry(SCD_TYPE)
    if entry and reader.get(SCD_TYPE) == "2" and not DECLARED_MODES[mode].replaces_rows:
        reader.add_fault(
            entry, "has no effect on tables that are appended to", f"set {MODE.name} to another than {mode}"
        )
    settings = WriteModeSettings(mode, reader.get(BRANCH), reader.get(SCD_TYPE), modes, branches, types)
    _check_types(reader, settings)
    return settings


def _check_types(reader: ConfigReader, settings: WriteModeSettings) -> None:
    """Refuse a history of single tables that are appended to; keys name a table with its namespace, or without."""
    own = {name.rpartition(".")[2]: mode for name, mode in settings.modes.items()}
    for table, kind in settings.scd_types.items():
        mode = own.get(table.rpartition(".")[2], settings.mode)
        if kind == "2" and not DECLARED_MODES[mode].replaces_rows:
            entry = reader.entries[f"{ROUTE_REGEX.name}{table}{SCD_TYPE_SUFFIX}"]
            todo = f"set {ROUTE_REGEX.name}{table}{MODE_SUFFIX} to another than {mode}"
            reader.add_fault(entry, "has no effect on a table that is appended to", todo)


def _read_by_table(reader: ConfigReader, suffix: str, option: Option[str]) -> dict[str, str]:
    keys = [entry.key for entry in reader.members(ROUTE_REGEX) if entry.key.endswith(suffix)]
    own = [attrs.evolve(option, name=key) for key in keys]
    return {
        each.name.removeprefix(ROUTE_REGEX.name).removesuffix(suffix): reader.get(each)
        for each in own
        if reader.entry(each) is not None
    }
