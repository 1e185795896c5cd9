"""Schemas of tables that others made, changed through the catalog."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import GeometryType, LongType, NestedField, UnknownType
from pyspark.sql import SparkSession

from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.types.schemas.schema_evolution import evolve
from connector.settings.iceberg.catalog import CatalogSettings
from tests.clients.lake import Lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_table_with_types_that_events_lack_grows(spark: SparkSession, tmp_path: Path) -> None:
    """What stays is not named again: a geometry and a column of no type yet stay what they are."""
    properties = {"type": "hadoop", "warehouse": str(tmp_path)}
    Lake(spark, "grown", properties)
    catalog = Catalog(spark, CatalogSettings("grown", properties, ("default",), {}))
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "later", UnknownType(), required=False),
        NestedField(3, "spot", GeometryType(), required=False),
    )
    table = catalog.create("odd", schema, properties={"format-version": "3"})
    before = {str(field.name()): str(field.type()) for field in table.java.schema().columns()}
    catalog.evolve(table, evolve(table.layout().columns, pa.struct([("more", pa.string())]), add=True))
    table.refresh()
    after = {str(field.name()): str(field.type()) for field in table.java.schema().columns()}
    assert after == {**before, "more": "string"}
