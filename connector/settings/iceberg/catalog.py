"""properties -> CatalogSettings: which Iceberg catalog, what it is handed, and the properties of tables we make.

Everything under `debezium.sink.iceberg.` that is not an option goes on to the catalog, or to new tables when it is a
table property (Iceberg documentation, "Configuration").
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import attrs

from connector.settings.configdef.option import Option, Prefix, format_names
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import TEXT, one_of
from connector.settings.iceberg import required_jars

_ADDRESSES = {
    "jdbc": "add it as jdbc:..., or leave the type out too for SQLite in a local warehouse",
    "rest": "add it as https://...",
    "nessie": "add it as https://...",
}
"""Type of a catalog that cannot do without an address -> how to give it."""

TABLE_FAMILIES = ("write.", "read.", "history.", "commit.", "gc.", "schema.name-mapping.", "compatibility.")


@attrs.frozen
class CatalogOptions:
    """The catalog's options under one prefix: a sink's and a source's differ in nothing else."""

    warehouse: Option[str | None]
    type: Option[str | None]
    impl: Option[str | None]
    uri: Option[str | None]
    io_impl: Option[str]
    name: Option[str]
    namespace: Option[str]
    rest: Prefix

    @property
    def all(self) -> tuple[Option[object], ...]:
        """All of them, in the order of documents."""
        return (self.warehouse, self.type, self.impl, self.uri, self.io_impl, self.name, self.namespace)


# Without the prefix, which a sink and a source each have their own.
_WAREHOUSE = Option(
    name="warehouse",
    kind=TEXT,
    default=None,
    importance="high",
    doc="Warehouse root: a local path or object store URI. Optional for REST and custom catalogs only.",
)
_TYPE = Option(
    name="type",
    kind=one_of("jdbc", "rest", "hive", "glue", "nessie", "hadoop", "bigquery", any_case=True),
    default=None,
    importance="high",
    doc="Catalog type: jdbc, rest, hive, glue, nessie, hadoop or bigquery.",
    shown="<from uri, else jdbc on SQLite in the warehouse>",
)
_IMPL = Option(
    name="catalog-impl",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Java class of a custom catalog, instead of type.",
)
_URI = Option(
    name="uri",
    kind=TEXT,
    default=None,
    importance="high",
    doc="URI of the catalog: JDBC, HTTP or thrift.",
    shown="<jdbc:sqlite in the warehouse>",
    secret=True,
)
_IO_IMPL = Option(
    name="io-impl",
    kind=TEXT,
    default="org.apache.iceberg.io.ResolvingFileIO",
    importance="low",
    doc="Java FileIO class for the warehouse's files.",
)
_NAME = Option(
    name="catalog-name",
    kind=TEXT,
    default="default",
    importance="medium",
    doc="Name of the catalog; a JDBC catalog stores it with every table.",
)


def declare_options(prefix: str, *, namespace: str, rest: str) -> CatalogOptions:
    """Declare the options under a prefix; the texts say what the namespace is of and what else may be options."""
    return CatalogOptions(
        warehouse=attrs.evolve(_WAREHOUSE, name=prefix + _WAREHOUSE.name),
        type=attrs.evolve(_TYPE, name=prefix + _TYPE.name),
        impl=attrs.evolve(_IMPL, name=prefix + _IMPL.name),
        uri=attrs.evolve(_URI, name=prefix + _URI.name),
        io_impl=attrs.evolve(_IO_IMPL, name=prefix + _IO_IMPL.name),
        name=attrs.evolve(_NAME, name=prefix + _NAME.name),
        namespace=Option(
            name=f"{prefix}table-namespace", kind=TEXT, default="default", importance="high", doc=namespace
        ),
        rest=Prefix(name=prefix, target="Iceberg", importance="medium", doc=rest),
    )


SINK_CATALOG = declare_options(
    "debezium.sink.iceberg.",
    namespace="Namespace of the tables; dots nest.",
    rest="Any other property of the Iceberg catalog, or of tables that are made (write.*, read.*, commit.* ...).",
)
SOURCE_CATALOG = declare_options(
    "iceberg.catalog.",
    namespace="Namespace of the table with the source's offsets; dots nest.",
    rest="Any other property of the Iceberg catalog. The sink's prefix debezium.sink.iceberg. also works.",
)


@attrs.frozen
class CatalogSettings:
    """A catalog: `properties` always hold `type` or `catalog-impl`, and `io-impl`; keys are without the prefix."""

    name: str
    properties: Mapping[str, str] = attrs.field(repr=format_names)
    namespace: tuple[str, ...]
    table_properties: Mapping[str, str] = attrs.field(repr=format_names)


def build(reader: ConfigReader, options: CatalogOptions = SINK_CATALOG) -> CatalogSettings:
    """Read the catalog's part; faults go to the reader."""
    passed = reader.under(options.rest)
    table = {key: text for key, text in passed.items() if key.startswith(TABLE_FAMILIES)}
    values = {
        option: reader.get(option)
        for option in (options.warehouse, options.type, options.impl, options.uri, options.io_impl)
    }
    named = {option.name.removeprefix(options.rest.name): text for option, text in values.items() if text}
    chosen = _complete_properties(reader, options, named)
    properties = chosen | {key: text for key, text in passed.items() if key not in table}
    _check_stores(reader, options, properties | table)
    _check_path(reader, options)
    return CatalogSettings(
        name=reader.get(options.name),
        properties=properties,
        namespace=_read_namespace(reader, options),
        table_properties=table,
    )


def _check_stores(reader: ConfigReader, options: CatalogOptions, properties: Mapping[str, str]) -> None:
    own_jars = any((entry := reader.entries.get(key)) and entry.text for key in required_jars.OWN_JARS)
    for problem in required_jars.find_problems(properties, own_jars=bool(own_jars)):
        entry = reader.entries.get(options.rest.name + problem.key)
        if entry:
            reader.add_fault(entry, problem.what, problem.todo)


def _check_path(reader: ConfigReader, options: CatalogOptions) -> None:
    """Refuse what a shell would replace or take away, and nobody else does: it would be a folder of that name."""
    entry = reader.entry(options.warehouse)
    if entry and entry.text.startswith(("'", '"')):
        reader.add_fault(entry, "is in quotes, which are part of a value here", "leave them out")
    if entry and entry.text.removeprefix("file://").startswith(("~", "$HOME", "%USERPROFILE%")):
        todo = "write the whole path, or ${env:HOME} for the home folder"
        reader.add_fault(entry, "begins with what only a shell replaces", todo)


def _read_namespace(reader: ConfigReader, options: CatalogOptions) -> tuple[str, ...]:
    levels = tuple(reader.get(options.namespace).split("."))
    entry = reader.entry(options.namespace)
    if entry and not all(level.strip() for level in levels):
        reader.add_fault(entry, "has an empty level", "write names separated by single dots")
    return levels


def _complete_properties(reader: ConfigReader, options: CatalogOptions, named: dict[str, str]) -> dict[str, str]:
    kind, impl = reader.entry(options.type), reader.entry(options.impl)
    if kind and impl:
        reader.add_fault(impl, "type is given too", "keep one of them")
    if kind or impl:
        completed = named
    elif "uri" in named:
        completed = named | {"type": _infer_type(reader, options, named["uri"])}
    else:
        return _embedded_catalog(reader, options, named)
    if (
        "warehouse" not in named
        and not impl
        and completed.get("type") != "rest"
        and reader.entry(options.warehouse) is None
    ):
        reader.add_missing(options.warehouse.name, "is missing", "add the root of the warehouse")
    if not impl:
        _check_address(reader, options, completed)
    return completed | _make_absolute(completed)


def _check_address(reader: ConfigReader, options: CatalogOptions, named: Mapping[str, str]) -> None:
    kind = named.get("type", "")
    if kind in _ADDRESSES and reader.entry(options.uri) is None:
        reader.add_missing(options.uri.name, f"is missing, and a {kind} catalog needs it", _ADDRESSES[kind])


def _make_absolute(named: Mapping[str, str]) -> dict[str, str]:
    """A relative warehouse made absolute, where it is a path: table locations outlive the working directory."""
    path = local_path(named.get("warehouse", ""))
    if path is None or ":" in named["warehouse"] or named.get("type") not in {"jdbc", "hadoop"}:
        return {}
    return {"warehouse": str(path)}


def _infer_type(reader: ConfigReader, options: CatalogOptions, uri: str) -> str:
    for start, kind in {"jdbc:": "jdbc", "http:": "rest", "https:": "rest", "thrift:": "hive"}.items():
        if uri.startswith(start):
            return kind
    entry = reader.entry(options.uri)
    if entry:
        reader.add_fault(entry, "does not name the type of catalog", f"add {options.type.name}")
    return ""


def _embedded_catalog(reader: ConfigReader, options: CatalogOptions, named: dict[str, str]) -> dict[str, str]:
    """A JDBC catalog on SQLite inside a local warehouse: what one gets by naming a warehouse only."""
    entry = reader.entry(options.warehouse)
    if entry is None:
        reader.add_missing(options.warehouse.name, "is missing", "add the root of the warehouse, such as a local path")
        return named
    path = local_path(named.get("warehouse", ""))
    if path is None:
        what = "is not a local path and no catalog is named"
        reader.add_fault(entry, what, f"add {options.type.name} and its properties")
        return named
    embedded = {"type": "jdbc", "uri": f"jdbc:sqlite:{path}/catalog.db", "jdbc.schema-version": "V1"}
    return embedded | named | _make_absolute(embedded | named)


def local_path(warehouse: str) -> Path | None:
    """The directory of a warehouse in the local file system, absolute; None for any other store, or for no URL."""
    try:
        parts = urlsplit(warehouse)
    except ValueError:
        return None
    if parts.scheme not in {"", "file"} or (parts.scheme and parts.netloc not in {"", "localhost"}) or not parts.path:
        return None
    return Path(unquote(parts.path) if parts.scheme else warehouse).absolute()
