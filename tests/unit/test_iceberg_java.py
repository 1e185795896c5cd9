"""The border to Java: names of classes, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JavaClass

from connector.iceberg.java import jvm


@pytest.mark.parametrize("name", ["java.util.HashMap", "org.apache.iceberg.util.JsonUtil", "java.lang.String"])
def test_a_name_with_a_capital_is_a_class(name: str) -> None:
    """Packages and classes are told apart by Java's custom; the JVM, which would search all jars, is not asked."""
    client = SimpleNamespace(converters=None, gateway_property=SimpleNamespace(auto_field=True, pool=None))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(_gateway_client=client)))
    found: Any = jvm(spark)
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, JavaClass)
    assert found._fqn == name
