"""a catalog's properties -> the jars of stores and databases that its session needs beside Spark's own, fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog

from connector.errors import FatalError
from connector.runtime.jvm.jars import fetch_jars
from connector.runtime.jvm.user_jars import missing_components
from connector.runtime.spark.session_conf import CatalogProperties
from connector.runtime.spark.spark_home import find_spark_home
from connector.settings.iceberg.required_jars import guess_components, required_components


def fetch_store_jars(catalog: CatalogProperties, spark: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the jars of stores and databases that the catalog needs and the user does not give, fetching them.

    FatalError: a jar is not to be had. One that may not be needed is then left out, with a warning.
    """
    required, guessed = find_missing_stores(catalog, spark)
    jars = [jar for name in required for jar in _fetch_component(name)]
    for name in guessed:
        try:
            jars += _fetch_component(name)
        except FatalError as error:
            structlog.get_logger().warning("continuing without a store's jar", store=name, reason=str(error))
    return tuple(jars)


def find_missing_stores(
    catalog: CatalogProperties, spark: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the components that the catalog needs and the user does not give, and those it may need."""
    base = f"spark.sql.catalog.{catalog.name}."
    over = {key.removeprefix(base): value for key, value in spark.items() if key.startswith(base)}
    known = {**catalog.properties, **getattr(catalog, "table_properties", {}), **over}
    shipped = find_spark_home() / "jars"
    required = missing_components(required_components(known), spark, shipped)
    return required, missing_components(guess_components(known), spark, shipped)


def _fetch_component(component: str) -> tuple[Path, ...]:
    try:
        return fetch_jars(component)
    except FatalError as error:
        raise FatalError(f"the catalog needs jars for {component}: {error}; or give them by spark.jars") from error
