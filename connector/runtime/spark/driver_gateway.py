"""The driver's JVM -> Py4J's gateway to it, without a Spark context: all that a look at Iceberg's catalogs needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(eq=False)
class DriverGateway:
    """A JVM with our jars; `conf` are the settings that a Spark session in it would have."""

    gateway: Any
    conf: Mapping[str, str]
