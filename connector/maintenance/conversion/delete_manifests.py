"""Delete manifests of a snapshot -> its equality delete files. On the driver; metadata only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import orjson
from pyspark.sql import SparkSession

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table import Table
from connector.iceberg.java import iterate, jvm, load_class, map_java_errors
from connector.maintenance.conversion.plan import EqualityDeleteFile, Scope

_FUNCTION = "org.apache.iceberg.relocated.com.google.common.base.Function"


def read_equality_deletes(spark: SparkSession, table: Table, snapshot_id: int) -> list[EqualityDeleteFile]:
    """Return the live equality delete files of a snapshot, oldest first.

    Cost: reads the snapshot's delete manifests, a few calls into Java for each of these files, none for others.

    Raises:
        RetriableError: the store is away, or the snapshot expired.
        FatalError: a manifest cannot be read.
    """
    with map_java_errors(f"reading the delete manifests of {table.name}"):
        snapshot, deletes = table.java.snapshot(snapshot_id), _equality_predicate(spark)
        manifests = list(iterate(snapshot.deleteManifests(table.java.io())))
        found = [file for manifest in manifests for file in _read_manifest(spark, table, manifest, deletes)]
    return sorted(found, key=lambda file: (file.sequence_number, file.path))


def _equality_predicate(spark: SparkSession) -> Any:
    """Return Java's predicate of equality delete files: asking each file of a manifest from here would cost more than
    reading it.
    """
    java, kind = jvm(spark), load_class(spark, "org.apache.iceberg.FileContent")
    invoke, base = java.java.lang.invoke, java.org.apache.iceberg.relocated.com.google.common.base
    shape = invoke.MethodType.methodType(kind)
    content = invoke.MethodHandles.publicLookup().findVirtual(
        load_class(spark, "org.apache.iceberg.ContentFile"), "content", shape
    )
    function = invoke.MethodHandleProxies.asInterfaceInstance(load_class(spark, _FUNCTION), content)
    return base.Predicates.compose(
        base.Predicates.equalTo(java.org.apache.iceberg.FileContent.EQUALITY_DELETES), function
    )


def _read_manifest(spark: SparkSession, table: Table, manifest: Any, deletes: Any) -> Iterator[EqualityDeleteFile]:
    iceberg = jvm(spark).org.apache.iceberg
    specs = table.java.specs()
    spec = specs[manifest.partitionSpecId()]
    everywhere = bool(spec.isUnpartitioned())
    reader = iceberg.ManifestFiles.readDeleteManifest(manifest, table.java.io(), specs)
    try:
        for file in iterate(iceberg.relocated.com.google.common.collect.Iterables.filter(reader, deletes)):
            description = str(iceberg.ContentFileParser.toJson(file, spec))
            sequence_number = int(file.dataSequenceNumber())
            yield attrs.evolve(parse_equality_delete(description, sequence_number, everywhere=everywhere), java=file)
    finally:
        reader.close()


def parse_equality_delete(description: str, sequence_number: int, *, everywhere: bool) -> EqualityDeleteFile:
    """Read Iceberg's JSON of a delete file; `everywhere` tells that its spec has no partitions."""
    file = orjson.loads(description)
    return EqualityDeleteFile(
        path=file["file-path"],
        sequence_number=sequence_number,
        equality_ids=tuple(sorted(file["equality-ids"])),
        records=file["record-count"],
        size_bytes=file["file-size-in-bytes"],
        scope=None if everywhere else scope_of(file["spec-id"], file["partition"]),
        description=FileDescription.of(file),
        bounds=_read_bounds(file),
        data_format=file["file-format"].lower(),
    )


def scope_of(spec_id: int, partition: Any) -> Scope:
    """Return a partition's name, equal for equal ones."""
    return spec_id, orjson.dumps(partition).decode()


def _read_bounds(file: dict[str, Any]) -> dict[int, tuple[bytes, bytes]]:
    low, high, nulls = (_to_map(file.get(name)) for name in ("lower-bounds", "upper-bounds", "null-value-counts"))
    return {
        int(number): (bytes.fromhex(low[number]), bytes.fromhex(high[number]))
        for number in low.keys() & high.keys()
        if nulls.get(number) == 0
    }


def _to_map(pairs: dict[str, list[Any]] | None) -> dict[Any, Any]:
    return {} if pairs is None else dict(zip(pairs["keys"], pairs["values"], strict=True))
