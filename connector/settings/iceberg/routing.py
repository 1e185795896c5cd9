"""properties -> RouteSettings: tables that events name themselves. Nothing given: the topic alone decides.

Names: Iceberg Kafka Connect's (`iceberg.tables*`, `iceberg.table.<t>.*`) and the JDBC sink's `collection.name.format`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

import attrs

from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, PATTERN, TABLE_NAMES, TEXT
from connector.settings.iceberg.table_names import TOPIC_TABLES, shorten_name

TABLES = Option(
    name="iceberg.tables",
    kind=TABLE_NAMES,
    default=(),
    importance="high",
    doc="Full names of the tables that every event goes to; with route-field, only to those whose route-regex matches.",
)
DYNAMIC = Option(
    name="iceberg.tables.dynamic-enabled",
    kind=BOOLEAN,
    default=False,
    importance="high",
    doc="Write each event to the table named by its route-field (namespace.table, in lower case).",
)
ROUTE_FIELD = Option(
    name="iceberg.tables.route-field",
    kind=TEXT,
    default=None,
    importance="high",
    doc="Field that selects an event's table; dotted if nested (region, source.table, after.region).",
)
NAME_FORMAT = Option(
    name="collection.name.format",
    kind=TEXT,
    default=None,
    importance="medium",
    doc="Template of the table name: ${topic}, ${source.table} or any field; dots, in values too, part namespaces.",
    aliases=("table.name.format",),
    literal=True,
)
AUTO_CREATE = Option(
    name="iceberg.tables.auto-create-enabled",
    kind=BOOLEAN,
    default=True,
    importance="medium",
    doc="Create missing tables; false sends their events to the dead letter topic.",
    shown="<true; false in a file of Iceberg Kafka Connect>",
)
CASE_INSENSITIVE = Option(
    name="iceberg.tables.schema-case-insensitive",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Match event fields and key columns that are set to columns ignoring case (top level only).",
)
FORCE_OPTIONAL = Option(
    name="iceberg.tables.schema-force-optional",
    kind=BOOLEAN,
    default=True,
    importance="low",
    doc="Create all columns as optional, whatever the event's schema says; key columns stay required.",
    shown="<not preserve-required-property>",
)
ROUTE_REGEX = Prefix(
    name="iceberg.table.",
    target="one table",
    importance="medium",
    doc="<table>.route-regex, .id-columns, .partition-by, .commit-branch, .write-mode, .scd-type, .maintenance.*.",
)
OPTIONS: tuple[Option[object], ...] = (
    TABLES,
    DYNAMIC,
    ROUTE_FIELD,
    NAME_FORMAT,
    AUTO_CREATE,
    CASE_INSENSITIVE,
    FORCE_OPTIONAL,
)
_PART = re.compile(r"\$\{([^}]*)\}")
_NO_NAME = "\0"
"""No file system, database or catalog takes it in a name."""


@attrs.frozen
class RouteSettings:
    """Which table an event goes to; `tables` are full names with their expression, `template` see `split_template`.

    `dynamic`: the value itself names the table. Without field and template every event goes to all tables.
    `namespace`: where tables without one are; empty for indexes.
    """

    field: str | None = None
    tables: tuple[tuple[str, str | None], ...] = ()
    dynamic: bool = False
    template: str | None = None
    namespace: str = ""

    def name_table(self, value: str) -> str | None:
        """Return the table that a value names (`dynamic`), always by one name; None where it can name none."""
        name = value if self.template else value.lower()
        if _NO_NAME in name or not all(part.strip() for part in name.split(".")):
            return None
        return shorten_name(name, self.namespace)

    @property
    def paths(self) -> frozenset[str]:
        """The fields of events that are looked at."""
        named = {path for _, paths in split_template(self.template or "") for path in paths}
        return frozenset(named | {self.field} if self.field else named)


def split_template(template: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return the pieces of a template: a literal, then the paths of which the first that an event has counts."""
    end = 0
    for match in _PART.finditer(template):
        yield template[end : match.start()], tuple(match[1].split("|"))
        end = match.end()
    if template[end:]:
        yield template[end:], ()


def build(reader: ConfigReader, cdc_target: str | None = None, namespace: str = "") -> RouteSettings | None:
    """Read the routes; None when topics decide. Faults go to the reader.

    Args:
        reader: holds what was given.
        namespace: of the sink's tables; empty for indexes, whose names have none.
        cdc_target: the template that `_cdc.target` stands for, where Iceberg's DebeziumTransform is configured.
    """
    tables, field, dynamic = reader.get(TABLES), reader.get(ROUTE_FIELD), reader.get(DYNAMIC)
    template = reader.get(NAME_FORMAT)
    _check_mapping(reader)
    regexps = _read_regexps(reader, tables, namespace, unused=field is None or dynamic)
    _check_routes(reader, tables, field, regexps, dynamic=dynamic, template=template)
    _check_names(reader, tables, namespace)
    if field == "_cdc.target" and cdc_target and dynamic:
        return RouteSettings(dynamic=True, template=cdc_target, namespace=namespace)
    if template and template != "${topic}":
        return RouteSettings(dynamic=True, template=template, namespace=namespace)
    if dynamic:
        return RouteSettings(field=field, dynamic=True, namespace=namespace)
    listed = tuple((shorten_name(name, namespace), regexps.get(name)) for name in tables)
    return RouteSettings(field, listed, namespace=namespace) if tables else None


def _check_names(reader: ConfigReader, tables: tuple[str, ...], namespace: str) -> None:
    by_name: dict[str, list[str]] = {}
    for name in tables:
        by_name.setdefault(shorten_name(name, namespace), []).append(name)
    twice = next((names for names in by_name.values() if len(names) > 1), None)
    entry = reader.entry(TABLES)
    if twice and entry:
        reader.add_fault(entry, f"{' and '.join(twice)} are one table", "keep one of them")


def _read_regexps(reader: ConfigReader, tables: Collection[str], namespace: str, *, unused: bool) -> dict[str, str]:
    """Return the expressions by the names that the tables are listed by; others may have the namespace, or lack it.

    unused: the tables of events are found without them.
    """
    listed = {shorten_name(name, namespace): name for name in tables}
    regexps: dict[str, str] = {}
    for entry in reader.members(ROUTE_REGEX):
        if entry.key.endswith(".route-regex"):
            option = Option(name=entry.key, kind=PATTERN, default="", importance="low", doc="")
            if reader.entry(option) is None:
                continue
            name = entry.key.removeprefix(ROUTE_REGEX.name).removesuffix(".route-regex")
            expression, own = reader.get(option), listed.get(shorten_name(name, namespace), name)
            if regexps.setdefault(own, expression) != expression:
                reader.add_fault(entry, f"{own} has another expression too, under its other name", "keep one of them")
            if own not in tables:
                reader.add_fault(entry, f"{TABLES.name} has no such table", "list it there, or take this out")
            elif unused:
                todo = f"set {ROUTE_FIELD.name}, or take it out"
                reader.add_fault(entry, "has no effect without a field that it is for", todo)
    return regexps


def _check_mapping(reader: ConfigReader) -> None:
    """Refuse tables of topics beside tables that events name themselves."""
    mapped = reader.entry(TOPIC_TABLES)
    by_template = reader.get(NAME_FORMAT) not in (None, "${topic}")
    others = [
        option.name
        for option, given in ((TABLES, reader.get(TABLES)), (DYNAMIC, reader.get(DYNAMIC)), (NAME_FORMAT, by_template))
        if given
    ]
    if mapped and others:
        reader.add_fault(mapped, f"{others[0]} is given too", "keep one of them")


def _check_routes(
    reader: ConfigReader,
    tables: tuple[str, ...],
    field: str | None,
    regexps: dict[str, str],
    *,
    dynamic: bool,
    template: str | None,
) -> None:
    entry = reader.entry(DYNAMIC)
    if dynamic and field is None and entry:
        reader.add_fault(entry, f"needs {ROUTE_FIELD.name}", "name the field that holds the table")
    listed = reader.entry(TABLES)
    unmatched = [name for name in tables if name not in regexps] if listed and field is not None and not dynamic else []
    if listed and unmatched:
        what = f"{ROUTE_FIELD.name} is given, and no event goes to {', '.join(unmatched)} without a route-regex"
        reader.add_fault(listed, what, "add iceberg.table.<table>.route-regex, or iceberg.tables.dynamic-enabled=true")
    if listed and dynamic:
        reader.add_fault(listed, f"{DYNAMIC.name} is true, which takes the table from the event", "keep one of them")
    by_field = reader.entry(ROUTE_FIELD)
    if by_field and not listed and not dynamic:
        reader.add_fault(by_field, "has no effect alone", f"add {TABLES.name} or {DYNAMIC.name}=true")
    named = reader.entry(NAME_FORMAT)
    if named and (listed or dynamic):
        reader.add_fault(named, "iceberg.tables or dynamic-enabled is given too", "keep one of them")
    if named and template and not _PART.search(template):
        reader.add_fault(named, "names no field", "write ${topic} or ${source.table}, or use iceberg.tables")
