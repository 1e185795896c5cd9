"""A table's name -> names and types of its columns now, for people who look at lineage. On the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from connector.errors import ConnectorError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.catalog.snapshot_schema import load_current_schema
from connector.settings import CatalogSettings

_NESTED = "type"


def column_lookup(spark: SparkSession, settings: CatalogSettings) -> Callable[[str], Sequence[tuple[str, str]]]:
    """Return what gives the columns of a table by its name with namespace; none where it cannot be asked.

    Cost of a call: one request to the catalog.
    """
    catalog = Catalog(spark, settings)

    def columns(name: str) -> Sequence[tuple[str, str]]:
        *namespace, table = name.split(".")
        try:
            found = catalog.find(tuple(namespace), table)
            if found is None:
                return []
            fields = load_current_schema(spark, found).document["fields"]
        except ConnectorError:
            return []
        return [(field["name"], _type_name(field["type"])) for field in fields]

    return columns


def _type_name(kind: object) -> str:
    return str(kind[_NESTED]) if isinstance(kind, dict) else str(kind)
