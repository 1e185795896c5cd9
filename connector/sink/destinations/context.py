"""Session, settings, catalog, offsets -> what a destination is opened with."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs
from pyspark.sql import SparkSession

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.iceberg.state.offsets_table import OffsetsTable
from connector.runtime.monitoring.listeners import MaintenanceListener
from connector.settings import SinkSettings


@attrs.frozen(eq=False)
class DestinationContext:
    """What a destination is opened with: session, settings, the catalog of system tables, stored offsets, topics.

    `listeners` are told about the maintenance of tables.
    """

    spark: SparkSession
    settings: SinkSettings
    catalog: Catalog
    offsets: OffsetsTable
    topics: Collection[str]
    listeners: Sequence[MaintenanceListener] = ()


def open_deleted_keys(context: DestinationContext) -> DeletedKeysTable | None:
    """Open the table of deleted keys where hard deletes leave no row."""
    settings = context.settings.table
    if not settings.upsert or settings.keep_deletes or not settings.deleted_keys.retention:
        return None
    return DeletedKeysTable(
        context.spark,
        context.catalog,
        settings.deleted_keys.table,
        context.settings.name,
        settings.deleted_keys.retention,
    )
