"""A loaded table -> what it is now: its Java object, and its metadata read with PyIceberg. On the driver.

Java commits; PyIceberg reads metadata files and manifests, where a call per snapshot or file through the JVM's gateway
would cost more than the reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import attrs
import orjson
from py4j.protocol import Py4JJavaError
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from connector.errors import CommitUnknown, FatalError, RetriableError
from connector.iceberg.catalog.content_files import make_content_files
from connector.iceberg.catalog.credentials import renewal_time_ms
from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.file_io import map_read_errors
from connector.iceberg.catalog.metadata_file import load_static_table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.java import (
    Driver,
    JavaTable,
    accept_callbacks,
    gateway_of,
    is_no_such_table,
    is_no_such_table_exception,
    iterate,
    jvm,
    map_java_errors,
    to_dict,
    vended_credentials,
)
from connector.runtime.jvm.callback_connections import callback_connections
from connector.runtime.retry import call_with_retries
from connector.runtime.spark.driver_gateway import DriverGateway
from connector.settings import ErrorSettings
from connector.settings.iceberg.new_tables.file_formats import DEFAULT_FORMAT_PROPERTY
from connector.settings.iceberg.write_mode import MAIN_BRANCH
from connector.settings.kafka.error_handling import NO_RETRIES

LINEAGE_VERSION = 3
"""The format version from which on rows have ids."""

VECTORS_VERSION = 3
"""From this format version on deletes by position are deletion vectors (Iceberg specification, delete formats)."""

_UUID_DIFFERS = "Table UUID does not match"
"""How Iceberg says, in every catalog, that another table has the name by now."""


@attrs.frozen
class SnapshotEntry:
    """A snapshot in a table's metadata: its parent, None for the first, and its summary."""

    parent_id: int | None
    summary: Mapping[str, str]


class Table:
    """A loaded table; `refresh` brings it up to date.

    `turn` is held during a commit: those of one process to one table take turns where they share it.
    """

    def __init__(
        self,
        driver: Driver,
        name: str,
        java: JavaTable,
        catalog_properties: dict[str, str],
        errors: ErrorSettings | None = None,
        load: Callable[[], JavaTable] | None = None,
    ) -> None:
        """Wrap a loaded Java table.

        Args:
            driver: the JVM that holds it.
            name: the table's name with its namespace.
            java: Iceberg's table object.
            catalog_properties: what the catalog was opened with; FileIO reads its own keys from it.
            errors: how long commits are tried again; None for a table that is only read.
            load: asks the catalog for the table once more, with what it hands out for it; None where that is not known.
        """
        self.driver, self.name, self.java = driver, name, java
        self.errors = errors or NO_RETRIES
        self._catalog_properties = catalog_properties
        self._load, self._loaded_ms = load, _now_ms()
        self._renewal_ms: int | None = None
        self._io_properties: dict[str, str] | None = None
        self.branch = MAIN_BRANCH
        self.turn: AbstractContextManager[object] = nullcontext()

    def follow(self, branch: str) -> None:
        """Look at, and commit to, this branch from now on; a table without snapshots gets it with its first commit.

        Raises:
            FatalError: the table has snapshots and no such branch.
        """
        found = self.java.refs().get(branch)
        if branch != MAIN_BRANCH and not (
            found.isBranch() if found is not None else self.java.currentSnapshot() is None
        ):
            raise FatalError(
                f"table {self.name} has no branch {branch}; make it (ALTER TABLE ... CREATE BRANCH) or name another"
            )
        self.branch = branch

    @property
    def spark(self) -> SparkSession:
        """The session whose JVM holds it. TypeError where that JVM has no Spark: then rows cannot be read."""
        if isinstance(self.driver, DriverGateway):
            raise TypeError(f"table {self.name} was loaded without Spark")
        return self.driver

    @property
    def snapshot_id(self) -> int | None:
        """The newest snapshot of the branch, None without one."""
        snapshot = self.java.snapshot(self.branch)
        return None if snapshot is None else int(snapshot.snapshotId())

    @property
    def uuid(self) -> str:
        """The table's own id, which a dropped and recreated table does not keep."""
        return str(self.java.uuid())

    @property
    def has_row_ids(self) -> bool:
        """Whether rows have ids that can be read: from version 3 on; Iceberg reads none of ORC files."""
        data_format = to_dict(self.java.properties()).get(DEFAULT_FORMAT_PROPERTY, "parquet")
        return self.format_version >= LINEAGE_VERSION and data_format.lower() != "orc"

    @property
    def format_version(self) -> int:
        """The table's format version (2 or 3; 1 cannot hold deletes)."""
        return int(self.java.operations().current().formatVersion())

    @property
    def metadata_files(self) -> int:
        """How many metadata files the newest one lists, with itself: those that may be deleted with later commits."""
        return int(self.java.operations().current().previousFiles().size()) + 1

    @property
    def own_thread(self) -> Any:
        """Java's `ExecutorService` that has no threads: who gives it work does it."""
        guava = jvm(self.driver).org.apache.iceberg.relocated.com.google.common
        return guava.util.concurrent.MoreExecutors.newDirectExecutorService()

    def refresh(self) -> None:
        """Read the table's newest metadata.

        Raises:
            RetriableError: the catalog is away.
            FatalError: it was dropped.
        """
        if not self.renew():
            with map_java_errors(f"refreshing table {self.name}"):
                self._reload()

    def _reload(self) -> None:
        """Have Java read the newest metadata; of a table that was dropped it tells so once, and has nothing then."""
        try:
            self.java.refresh()
        except Py4JJavaError as error:
            if is_no_such_table_exception(error):
                raise FatalError(self._tell_dropped()) from error
            if _UUID_DIFFERS in str(error.java_exception.getMessage()):
                raise FatalError(
                    f"table {self.name} was dropped, and there is another of its name; start again, which tells what "
                    "to do"
                ) from error
            raise
        if self.java.operations().current() is None:
            raise FatalError(self._tell_dropped())

    def _tell_dropped(self) -> str:
        return f"table {self.name} no longer exists: it was dropped; start again"

    def is_gone(self, uuid: str) -> bool:
        """Ask the catalog whether it has no table of this name any more, or another one than that of the id `uuid`.

        Raises:
            RetriableError: the catalog is away.
        """
        if self._load is None:
            return False
        try:
            with map_java_errors(f"loading table {self.name}"):
                return str(self._load().uuid()) != uuid
        except FatalError as error:
            if is_no_such_table(error):
                return True
            raise

    def settle(self, doing: str, change: Callable[[], None]) -> None:
        """Change the table's metadata, again until it is known to be done; done twice it must be as done once.

        Raises:
            RetriableError: the catalog stayed away, or others were faster, longer than `errors.retry.timeout`.
            FatalError: the change is impossible.
        """

        def attempt() -> None:
            try:
                with map_java_errors(doing):
                    self._reload()
                    change()
                    self._reload()
            except CommitUnknown as error:
                raise RetriableError(str(error)) from error.__cause__

        call_with_retries(attempt, self.errors)

    def renew(self) -> bool:
        """Load the table again if the credentials that came with it are about to end; tell whether they were.

        Raises:
            RetriableError: the catalog is away.
        """
        if self._load is None:
            return False
        if self._io_properties is None:
            # Whoever only commits has not asked yet what came with the table, and when it ends.
            with map_java_errors(f"reading the properties of table {self.name}"):
                self.io_properties()
        if self._renewal_ms is None or _now_ms() < self._renewal_ms:
            return False
        with map_java_errors(f"loading table {self.name} with new credentials"):
            self.java, self._loaded_ms = self._load(), _now_ms()
        self.io_properties()
        return True

    def renew_layout(self, layout: TableLayout) -> TableLayout:
        """Return a layout of this table with credentials that are good for a while, whoever had them renewed.

        Raises:
            RetriableError: the catalog is away.
        """
        self.renew()
        newest = self._io_properties
        return layout if newest in (None, layout.io_properties) else attrs.evolve(layout, io_properties=newest)

    def has_spec(self, spec_id: int) -> bool:
        """Whether it has a partition spec of this id: engines may remove one that no file has any more."""
        return bool(self.java.specs().containsKey(spec_id))

    def unpartitioned_spec(self) -> Any:
        """Return a Java spec without partition fields, or none but dropped ones; None when the table has none."""
        if self.java.spec().isUnpartitioned():
            return self.java.spec()
        specs = (entry.getValue() for entry in iterate(self.java.specs().entrySet()))
        return next((spec for spec in specs if spec.isUnpartitioned()), None)

    @property
    def schema_json(self) -> str:
        """The table's schema as it was last read, in Iceberg's JSON."""
        with map_java_errors(f"reading the schema of {self.name}"):
            return str(jvm(self.driver).org.apache.iceberg.SchemaParser.toJson(self.java.schema()))

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of which one changes where `layout` does: with schema, partition spec, sort order or properties."""
        java = self.java
        with map_java_errors(f"looking at {self.name}"):
            numbers = (java.schema().schemaId(), java.spec().specId(), java.sortOrder().orderId())
            return (*map(int, numbers), int(java.properties().hashCode()))

    def layout(self) -> TableLayout:
        """Return what executors need to write files for this table."""
        iceberg = jvm(self.driver).org.apache.iceberg
        with map_java_errors(f"reading the schema of {self.name}"):
            spec, everywhere = self.java.spec(), self.unpartitioned_spec()
            return TableLayout(
                name=self.name,
                uuid=self.uuid,
                location=str(self.java.location()),
                schema_json=self.schema_json,
                spec_json=iceberg.PartitionSpecParser.toJson(spec),
                delete_spec_id=0 if everywhere is None else int(everywhere.specId()),
                properties=to_dict(self.java.properties()),
                io_properties=self.io_properties(),
                order_json=str(iceberg.SortOrderParser.toJson(self.java.sortOrder())),
                delete_spec_fields=0 if everywhere is None else int(everywhere.fields().size()),
            )

    def io_properties(self) -> dict[str, str]:
        """Return what a FileIO needs: the catalog's properties, and credentials that the catalog handed out."""
        io, properties = self.java.io(), self._catalog_properties
        # Only such catalogs hand something out; asking costs a call for every table of a batch.
        handed = vended_credentials(io, str(self.java.location())) if properties.get("type") in (None, "rest") else {}
        merged = {**properties, **to_dict(io.properties()), **handed}
        self._io_properties = merged
        self._renewal_ms = renewal_time_ms(merged, properties, self._loaded_ms)
        return merged

    def metadata(self) -> StaticTable:
        """Read the current metadata with PyIceberg.

        Raises:
            RetriableError: the store is away, or so many commits came meanwhile that the file is gone.
            FatalError: the file is gone otherwise, or cannot be read.
        """
        properties, location = self.io_properties(), self._location()
        with self.reading("the metadata"):
            return load_static_table(location, properties)

    @contextmanager
    def reading(self, what: str) -> Iterator[None]:
        """Read files of the table as it was last loaded, in Python.

        Raises:
            RetriableError: the store is away, or a file went with a commit that came meanwhile.
            FatalError: a file is gone otherwise, or cannot be read.
        """
        location = self._location()
        try:
            with map_read_errors(f"reading {what} of table {self.name}"):
                yield
        except FatalError as error:
            if not isinstance(error.__cause__, FileNotFoundError) or not self._has_newer_metadata(location):
                raise
            raise RetriableError(f"{error}; the table is newer now") from error

    def _location(self) -> str:
        return str(self.java.operations().current().metadataFileLocation())

    def _has_newer_metadata(self, location: str) -> bool:
        self.refresh()
        return self._location() != location

    def list_snapshots(self) -> dict[int, SnapshotEntry]:
        """Return all snapshots of the table as it was last read, of any branch, by id."""
        with map_java_errors(f"reading the snapshots of table {self.name}"):
            parser = jvm(self.driver).org.apache.iceberg.TableMetadataParser
            text = str(parser.toJson(self.java.operations().current()))
        return {
            snapshot["snapshot-id"]: SnapshotEntry(snapshot.get("parent-snapshot-id"), snapshot.get("summary", {}))
            for snapshot in orjson.loads(text).get("snapshots", ())
        }

    def accept_callbacks(self) -> AbstractContextManager[None]:
        """Let validators and callbacks of commits, which are Python's, be called by Java meanwhile."""
        return accept_callbacks(self.driver)

    def note_caller(self) -> None:
        """Remember which thread of Java's calls now: its connection is closed once it has ended."""
        callback_connections(gateway_of(self.driver)).note_caller()

    def ancestors(self) -> Iterator[Snapshot]:
        """Return the newest snapshot of the branch and those before it that have not expired, newest first."""
        newest = self.snapshot_id
        by_id = {snapshot.snapshot_id: snapshot for snapshot in self.metadata().metadata.snapshots}
        at = by_id.get(newest) if newest is not None else None
        while at is not None:
            yield at
            at = by_id.get(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None

    def java_ancestors(self) -> Iterator[Any]:
        """Yield them as Java's snapshots, of the metadata that Java holds: no file is read.

        Cost: three calls of Java each, so it is for those who need the newest few.
        """
        at = self.java.snapshot(self.branch)
        while at is not None:
            yield at
            parent = at.parentId()
            at = None if parent is None else self.java.snapshot(parent)

    def expression(self, where: str) -> Any:
        """Read Iceberg's JSON of an expression over the table's columns.

        Its parser goes by names in any case, and refuses a schema in which two columns differ by that alone: it is
        given those that the expression names.
        """
        java = jvm(self.driver)
        names = java.java.util.ArrayList()
        for name in find_terms(orjson.loads(where)):
            names.add(name)
        return java.org.apache.iceberg.expressions.ExpressionParser.fromJson(where, self.java.schema().select(names))

    def content_files(self, descriptions: Iterable[FileDescription]) -> Iterator[Any]:
        """Make Iceberg's content files from their JSON descriptions."""
        return make_content_files(self.driver, self.java.specs(), descriptions)

    def delete_file(self, path: str) -> None:
        """Delete a file that no snapshot refers to."""
        with map_java_errors(f"deleting a file of {self.name}"):
            self.java.io().deleteFile(path)


def find_terms(expression: Any) -> set[str]:
    """Return the columns that an expression in Iceberg's JSON names, also within transforms (pure)."""
    if not isinstance(expression, dict):
        return set()
    term = expression.get("term")
    if isinstance(term, str):
        return {term}
    inner = (term, *(expression.get(part) for part in ("left", "right", "child")))
    return set[str]().union(*map(find_terms, inner))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
