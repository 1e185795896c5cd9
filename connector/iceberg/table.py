"""One Iceberg table, seen from the driver: its Java object, and its metadata read with PyIceberg.

Java commits; PyIceberg reads metadata files and manifests, where a call per snapshot or file through the JVM's gateway
would cost more than the reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from connector.iceberg.java import JavaTable, as_dict, jvm, mapped
from connector.iceberg.layout import TableLayout


class Table:
    """A loaded table; `refresh` brings it up to date."""

    def __init__(self, spark: SparkSession, name: str, java: JavaTable, catalog_properties: dict[str, str]) -> None:
        """Wrap a loaded Java table.

        Args:
            spark: the session whose JVM holds it.
            name: the table's name with its namespace.
            java: Iceberg's table object.
            catalog_properties: what the catalog was opened with; FileIO reads its own keys from it.
        """
        self._spark, self.name, self.java = spark, name, java
        self._catalog_properties = catalog_properties

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot, None for a table without one."""
        snapshot = self.java.currentSnapshot()
        return None if snapshot is None else int(snapshot.snapshotId())

    @property
    def uuid(self) -> str:
        """The table's own id, which a dropped and recreated table does not keep."""
        return str(self.java.uuid())

    @property
    def format_version(self) -> int:
        """The table's format version (2 or 3; 1 cannot hold deletes)."""
        return int(self.java.operations().current().formatVersion())

    def refresh(self) -> None:
        """Read the table's newest metadata.

        Raises:
            RetriableError: the catalog is away.
        """
        with mapped(f"refreshing table {self.name}"):
            self.java.refresh()

    def unpartitioned_spec_id(self) -> int | None:
        """Give the id of a spec without partition fields, None when the table has none."""
        if self.java.spec().isUnpartitioned():
            return int(self.java.spec().specId())
        for spec in self.java.specs().values():
            if spec.isUnpartitioned():
                return int(spec.specId())
        return None

    def layout(self) -> TableLayout:
        """Give what executors need to write files for this table."""
        iceberg = jvm(self._spark).org.apache.iceberg
        with mapped(f"reading the schema of {self.name}"):
            spec = self.java.spec()
            return TableLayout(
                name=self.name,
                uuid=self.uuid,
                location=str(self.java.location()),
                schema_json=iceberg.SchemaParser.toJson(self.java.schema()),
                spec_json=iceberg.PartitionSpecParser.toJson(spec),
                delete_spec_id=self.unpartitioned_spec_id() or 0,
                properties=as_dict(self.java.properties()),
                io_properties=self.io_properties(),
            )

    def io_properties(self) -> dict[str, str]:
        """Give what a FileIO needs: the catalog's properties, and credentials that the catalog handed out."""
        return {**self._catalog_properties, **as_dict(self.java.io().properties())}

    def metadata(self) -> StaticTable:
        """Read the current metadata with PyIceberg."""
        location = str(self.java.operations().current().metadataFileLocation())
        return StaticTable.from_metadata(location, self.io_properties())

    def ancestors(self) -> Iterator[Snapshot]:
        """Give the current snapshot and those before it that have not expired, newest first."""
        metadata = self.metadata().metadata
        by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        at = by_id.get(metadata.current_snapshot_id) if metadata.current_snapshot_id is not None else None
        while at is not None:
            yield at
            at = by_id.get(at.parent_snapshot_id) if at.parent_snapshot_id is not None else None

    def content_file(self, description: bytes) -> Any:
        """Make Iceberg's content file from its JSON description."""
        iceberg = jvm(self._spark).org.apache.iceberg
        mapper = iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        return iceberg.ContentFileParser.fromJson(mapper.readTree(description.decode()), self.java.specs())

    def delete_file(self, path: str) -> None:
        """Delete a file that no snapshot refers to."""
        with mapped(f"deleting a file of {self.name}"):
            self.java.io().deleteFile(path)
