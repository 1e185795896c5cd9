"""Fields of events that tables lack -> the batch goes on without them, or the sink stops before it commits (pure)."""

from __future__ import annotations

from collections.abc import Iterable

from connector.errors import FatalError
from connector.settings import TableSettings
from connector.settings.iceberg.schema_evolution import EVOLUTION


def check_fields(settings: TableSettings, lacking: Iterable[tuple[str, str]]) -> None:
    """Refuse a batch whose events have fields that their tables have not, where the settings ask for that.

    Args:
        settings: of the sink's tables.
        lacking: pairs of a table, as messages name it, and a field.

    Raises:
        FatalError: which tables and fields, and what to do.
    """
    lacking = sorted(set(lacking))
    if not (settings.requires_fields and lacking):
        return
    fields = [f"{name} ({', '.join(field for table, field in lacking if table == name)})" for name, _ in lacking]
    raise FatalError(
        f"events have fields that their tables have not, and {EVOLUTION.name} is validate-only: "
        f"{', '.join(dict.fromkeys(fields))}; add the columns (ALTER TABLE), name the fields in "
        f"debezium.sink.iceberg.excluded-columns, or set {EVOLUTION.name}=basic"
    )
