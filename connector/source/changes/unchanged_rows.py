"""Changes of a snapshot -> those without updates that change nothing of what is published of a row."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from connector.source.changes.rewrites.row_digests import write_digests


def drop_unchanged(changes: DataFrame, columns: Collection[str], keys: Collection[str]) -> DataFrame:
    """Return the changes less the updates that leave the published columns, and the key, as they were.

    Rows are compared by their digests, which take in values of any type.

    Args:
        changes: as of `snapshot_diff`.
        columns: the columns that are published.
        keys: the key's, with dots between the fields of structs; what else such a struct has counts too.
    """
    image = changes.schema["after"].dataType
    assert isinstance(image, StructType)
    fields = [one for one in image.fields if one.name in columns or _is_of_key(one.name, keys)]
    before, after = (F.array(*map(F.expr, write_digests(fields, f"{side}."))) for side in ("before", "after"))
    return changes.filter((F.col("op") != "u") | (before != after))


def _is_of_key(column: str, keys: Collection[str]) -> bool:
    return any(key == column or key.startswith(f"{column}.") for key in keys)
