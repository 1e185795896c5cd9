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

    `listeners` are told about the maintenance of tables. With `is_dry` nothing is changed, nor made, as it is opened.
    """

    spark: SparkSession
    settings: SinkSettings
    catalog: Catalog
    offsets: OffsetsTable
    topics: Collection[str]
    listeners: Sequence[MaintenanceListener] = ()
    is_dry: bool = False


def open_deleted_keys(context: DestinationContext) -> DeletedKeysTable | None:
    """Open the table of deleted keys where hard deletes leave no row; None too for a dry run where it is not there."""
    settings = context.settings.table
    if not settings.upsert or settings.keep_deletes or not settings.deleted_keys.retention:
        return None
    if context.is_dry and context.catalog.load(settings.deleted_keys.table) is None:
        return None
    return DeletedKeysTable(
        context.spark,
        context.catalog,
        settings.deleted_keys.table,
        context.settings.name,
        settings.deleted_keys.retention,
    )
