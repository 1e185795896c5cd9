"""Table names -> tables: load, create, evolve through Iceberg's catalog. On the driver; metadata only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JJavaError
from pyiceberg.schema import Schema

from connector.errors import CommitUnknown, FatalError, RetriableError
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import (
    Driver,
    gateway_of,
    iceberg_catalog,
    is_no_such_table,
    is_no_such_table_exception,
    iterate,
    java_exception_name,
    jvm,
    map_java_errors,
    to_string_array,
)
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, build_table_schema
from connector.iceberg.types.schemas.schema_evolution import find_changed
from connector.runtime.retry import call_with_retries
from connector.settings import CatalogSettings, ErrorSettings
from connector.settings.iceberg.catalog import local_path
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from connector.settings.iceberg.new_tables.sort_order import SortTerm
from connector.settings.kafka.error_handling import NO_RETRIES

_REFUSED_AS_IT_IS = "ValidationException"
"""What Iceberg throws of a table that cannot be made: nothing is in its way, as there may be in that of a commit."""
_TRIES_OF_TAKEN_NAMES = 5
"""So often a table is made whose name is taken, though no table of that name is there."""
_WITH_PATHS, _WHOLE_PATHS = ("jdbc", "hadoop"), ("/", "file:")
_TABLE_INTERFACE = "org.apache.iceberg.HasTableOperations"


def _make_warehouse(properties: Mapping[str, str]) -> None:
    """Make the folder of a local warehouse: SQLite makes its file, not the folder of it.

    Other kinds of catalogs have names of their own for warehouses, which are no paths (`lake`). Of a class of the
    user's (`catalog-impl`), which may be a JDBC catalog too, a whole path is one.

    Raises:
        FatalError: it cannot be made.
    """
    kind, warehouse = properties.get("type"), properties.get("warehouse", "")
    is_path = kind in _WITH_PATHS or (kind is None and warehouse.startswith(_WHOLE_PATHS))
    folder = local_path(warehouse) if is_path else None
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FatalError(
            f"the folder of the warehouse, {folder}, cannot be made ({error.strerror}); name another one in warehouse, "
            "or make it and let this user write there"
        ) from error


def names_in_settings(catalog: Catalog, table: str) -> tuple[str, str]:
    """Return the names under which settings may have a table of its own: without namespace, and with it.

    In another namespace than the connector's a table has its full name alone: without it, that is another table.
    """
    short, full_name = table.rpartition(".")[2], catalog.full_name(table)
    return short if catalog.full_name(short) == full_name else full_name, full_name


class Catalog:
    """The catalog of one connector; a table is named without namespace where that is the connector's own, else with."""

    def __init__(self, driver: Driver, settings: CatalogSettings, errors: ErrorSettings | None = None) -> None:
        """Connect to the catalog; `errors` tells how long what is made and committed there is tried again.

        Raises:
            RetriableError: it is away.
            FatalError: it cannot be opened.
        """
        self._driver, self._settings, self._errors = driver, settings, errors or NO_RETRIES
        _make_warehouse(settings.properties)
        self._java = iceberg_catalog(driver, settings.name)
        self._lock = threading.Lock()
        self._ensured: set[tuple[str, ...]] = set()

    def full_name(self, table: str) -> str:
        """Return a table's name with its namespace, dots between."""
        levels, name = self._split(table)
        return ".".join((*levels, name))

    def load(self, table: str) -> Table | None:
        """Return the table, or None if there is no such table."""
        with map_java_errors(f"loading table {self.full_name(table)}"):
            identifier = self._identifier(table)
            if not self._java.tableExists(identifier):
                return None
            return self._wrap_table(self.full_name(table), self._java.loadTable(identifier), identifier)

    def find(self, namespace: tuple[str, ...], table: str) -> Table | None:
        """Return a table of any namespace, or None if there is no such table.

        Cost: one request to the catalog.
        """
        name = ".".join((*namespace, table))
        try:
            with map_java_errors(f"loading table {name}"):
                iceberg = jvm(self._driver).org.apache.iceberg
                where = iceberg.catalog.Namespace.of(to_string_array(self._driver, namespace))
                identifier = iceberg.catalog.TableIdentifier.of(where, table)
                java = self._java.loadTable(identifier)
            if not is_instance_of(gateway_of(self._driver), java, _TABLE_INTERFACE):
                return None  # what Iceberg tells of a table (`orders.snapshots`), under a name like a table's
        except FatalError as error:
            if is_no_such_table(error):
                return None
            raise
        return self._wrap_table(name, java, identifier)

    def list_tables(self, namespace: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
        """Return namespace and name of every table of the catalog, or of one namespace; none if that is not there.

        A namespace that is dropped meanwhile has none. Cost: two requests per namespace.
        """
        with map_java_errors(f"listing the tables of catalog {self._settings.name}"):
            return sorted(self._tables_of(namespace) if namespace else self._iter_tables(()))

    def _tables_of(self, levels: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
        for identifier in self._look_into(self._java.listTables, levels):
            yield levels, str(identifier.name())

    def _iter_tables(self, levels: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
        if levels:
            yield from self._tables_of(levels)
        for below in self._look_into(self._java.listNamespaces, levels):
            deeper = tuple(str(level) for level in below.levels())
            if len(deeper) > len(levels):
                yield from self._iter_tables(deeper)

    def _look_into(self, look: Callable[[Any], Any], levels: tuple[str, ...]) -> list[Any]:
        """Return what a look into a namespace finds; nothing where it is not there, as when others just dropped it."""
        try:
            return list(iterate(look(self._namespace(levels))))
        except Py4JJavaError as error:
            if not is_no_such_table_exception(error):
                raise
            return []

    def create(
        self,
        table: str,
        schema: Schema,
        partition_by: tuple[PartitionTerm, ...] = (),
        properties: Mapping[str, str] | None = None,
        sort_by: tuple[SortTerm, ...] = (),
        location: str | None = None,
    ) -> Table:
        """Create a table, or give the one that another process created first.

        It starts unpartitioned and gets its partition fields in the same transaction: so it has an unpartitioned spec
        for global equality deletes (recipes, "Global equality delete"). Where the catalog does not say what became of
        it, it is looked for, and made again if it is not there: only one of several creations can succeed.

        Raises:
            RetriableError: the catalog stayed away longer than `errors.retry.timeout`.
            FatalError: it cannot be made, or the catalog has something else of that name.
        """

        def make(tries: int = _TRIES_OF_TAKEN_NAMES) -> Table:
            taken = None
            try:
                self._ensure_namespace(self._split(table)[0])
                self._create(table, schema, partition_by, dict(properties or {}), sort_by, location)
            except CommitUnknown as error:
                raise RetriableError(str(error)) from error.__cause__
            except (FatalError, RetriableError) as error:
                reason = java_exception_name(error)
                if reason == _REFUSED_AS_IT_IS:
                    raise FatalError(
                        f"{error}; correct what names or describes new tables (partition-by, sort-by, table-namespace)"
                    ) from error.__cause__
                if reason != "AlreadyExistsException":
                    raise
                taken = error
            created = self.load(table)
            if created is None and taken is not None:
                if tries > 1:
                    # Whoever created it first may have dropped it since, or another commit is in its way.
                    return make(tries - 1)
                raise FatalError(
                    f"{taken}, and it is no table that can be loaded; if it is a view, or one that this login may not "
                    "see, drop it, or give the table another name"
                ) from taken
            if created is None:
                raise RetriableError(f"creating table {self.full_name(table)}: it does not exist afterwards")
            return created

        # One that was made without an answer is there by now, or is refused beside the next.
        return call_with_retries(lambda: self.load(table) or make(), self._errors)

    def _create(
        self,
        table: str,
        schema: Schema,
        partition_by: tuple[PartitionTerm, ...],
        properties: dict[str, str],
        sort_by: tuple[SortTerm, ...],
        location: str | None,
    ) -> None:
        with map_java_errors(f"creating table {self.full_name(table)}"):
            parsed = jvm(self._driver).org.apache.iceberg.SchemaParser.fromJson(schema.model_dump_json())
            builder = self._java.buildTable(self._identifier(table), parsed).withProperties(properties)
            if location:
                builder = builder.withLocation(location)
            transaction = builder.createTransaction()
            if partition_by:
                self._add_fields(transaction.updateSpec(), partition_by)
            if sort_by:
                self._add_order(transaction.replaceSortOrder(), sort_by)
            transaction.commitTransaction()

    def evolve(self, table: Table, columns: pa.Schema) -> None:
        """Bring a table's schema up to `columns` (see `schema_evolution.evolve`): new columns, promoted types.

        Columns that stay as they are may be of any type, also of one that events have not. Done once more it changes
        nothing: so it is, until the catalog has said that it is done.

        Raises:
            RetriableError: the catalog stayed away longer than `errors.retry.timeout`.
        """
        layout = table.layout()
        columns, kept = find_changed(layout.columns, columns), layout.variants
        if not columns.names:
            return
        required = frozenset(field.name for field in columns if not field.nullable)
        columns = pa.schema([field.with_type(VARIANT_ARROW_TYPE) if field.name in kept else field for field in columns])
        wanted = build_table_schema(columns, (), required, nanoseconds=table.format_version > 2)  # noqa: PLR2004 - v3 has them

        def change() -> None:
            parsed = jvm(self._driver).org.apache.iceberg.SchemaParser.fromJson(wanted.model_dump_json())
            table.java.updateSchema().unionByNameWith(parsed).commit()

        table.settle(f"evolving table {table.name}", change)

    def rename_columns(self, table: Table, renames: Mapping[str, str], properties: Mapping[str, str]) -> None:
        """Give columns other names, and set properties in the same commit; their field ids stay.

        A column that is not there, or whose new name another one has, keeps its own: so done once more it changes
        nothing.

        Raises:
            RetriableError: the catalog stayed away longer than `errors.retry.timeout`.
        """

        def change() -> None:
            transaction = table.java.newTransaction()
            names = {str(field.name()) for field in table.java.schema().columns()}
            update = transaction.updateSchema()
            for before, after in renames.items():
                if before in names and after not in names:
                    update.renameColumn(before, after)
            update.commit()
            written = transaction.updateProperties()
            for key, value in properties.items():
                written.set(key, value)
            written.commit()
            transaction.commitTransaction()

        table.settle(f"renaming columns of table {table.name}", change)

    def ensure_delete_spec(self, table: Table) -> None:
        """Add an unpartitioned spec to a table that never had one: fields out, fields back in, metadata only.

        What format version 1 has left of a field stays out where its column is gone.
        """

        def change() -> None:
            if table.unpartitioned_spec() is not None:
                return
            transaction = table.java.newTransaction()
            fields = list(iterate(table.java.spec().fields()))
            out = transaction.updateSpec()
            for field in fields:
                out.removeField(field.name())
            out.commit()
            back = transaction.updateSpec()
            expressions = jvm(self._driver).org.apache.iceberg.expressions.Expressions
            for field in fields:
                source = table.java.schema().findColumnName(field.sourceId())
                if source is not None:
                    back.addField(field.name(), expressions.transform(source, field.transform()))
            back.commit()
            transaction.commitTransaction()

        if table.unpartitioned_spec() is None:
            table.settle(f"adding an unpartitioned spec to table {table.name}", change)

    def _wrap_table(self, name: str, java: Any, identifier: Any) -> Table:
        properties = dict(self._settings.properties)
        return Table(self._driver, name, java, properties, self._errors, lambda: self._java.loadTable(identifier))

    def _split(self, table: str) -> tuple[tuple[str, ...], str]:
        *levels, name = table.split(".")
        return tuple(levels) or self._settings.namespace, name

    def _identifier(self, table: str) -> Any:
        levels, name = self._split(table)
        return jvm(self._driver).org.apache.iceberg.catalog.TableIdentifier.of(self._namespace(levels), name)

    def _namespace(self, levels: tuple[str, ...]) -> Any:
        return jvm(self._driver).org.apache.iceberg.catalog.Namespace.of(to_string_array(self._driver, levels))

    def _ensure_namespace(self, levels: tuple[str, ...]) -> None:
        """Create a namespace that is not there, once: tables are made in several threads."""
        with self._lock:
            if levels not in self._ensured:
                self._create_namespace(levels)
                self._ensured.add(levels)

    def _create_namespace(self, levels: tuple[str, ...]) -> None:
        try:
            with map_java_errors(f"creating namespace {'.'.join(levels)}"):
                if not self._java.namespaceExists(self._namespace(levels)):
                    self._java.createNamespace(self._namespace(levels))
        except (FatalError, RetriableError) as error:
            if java_exception_name(error) not in ("AlreadyExistsException", "UnsupportedOperationException"):
                raise

    def _add_order(self, update: Any, terms: tuple[SortTerm, ...]) -> None:
        iceberg = jvm(self._driver).org.apache.iceberg
        for term in terms:
            nulls = iceberg.NullOrder.NULLS_FIRST if term.nulls_first else iceberg.NullOrder.NULLS_LAST
            by = self._expression(term.by)
            update = update.desc(by, nulls) if term.descending else update.asc(by, nulls)
        update.commit()

    def _add_fields(self, update: Any, terms: tuple[PartitionTerm, ...]) -> None:
        for term in terms:
            update.addField(self._expression(term))
        update.commit()

    def _expression(self, term: PartitionTerm) -> Any:
        expressions = jvm(self._driver).org.apache.iceberg.expressions.Expressions
        transform = getattr(expressions, "ref" if term.transform == "identity" else term.transform)
        return transform(term.column) if term.width is None else transform(term.column, term.width)
