"""Settings + a table's name -> what is configured for that table: key, write mode, history, branch."""

from __future__ import annotations

import attrs
import pyarrow as pa

from connector.errors import FatalError
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.types.nested_columns import find_path
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE
from connector.settings import TableSettings
from connector.settings.iceberg.primary_key import KeySource
from connector.settings.iceberg.write_mode import APPEND_MODE, DECLARED_MODES
from connector.sink.convert.columns.field_matching import match_names
from connector.sink.destinations.iceberg.write_modes.base import WriteMode
from connector.sink.destinations.iceberg.write_modes.registry import WRITE_MODES
from connector.sink.destinations.table_schema import scd2_key


@attrs.frozen
class TableOptions:
    """The settings as they apply to one table; `names` (without and with namespace) select the table's own settings."""

    settings: TableSettings
    names: tuple[str, str]

    @property
    def full_name(self) -> str:
        """The table's name with its namespace."""
        return self.names[1]

    @property
    def branch(self) -> str:
        """The branch that is written to."""
        return self.settings.writes.branch_of(*self.names)

    @property
    def keeps_history(self) -> bool:
        """Whether every version of a row is kept."""
        return self.settings.writes.keeps_history(*self.names)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key columns that are configured."""
        return self.settings.keys.of(*self.names)

    @property
    def key_source(self) -> KeySource:
        """Where keys are read."""
        return self.settings.keys.key_source(*self.names)

    def write_mode_name(self, *, has_key: bool = True) -> str:
        """Return the name of the write mode; without a key, rows are appended."""
        return self.settings.writes.mode_of(*self.names) if self.settings.upsert and has_key else APPEND_MODE

    @property
    def write_mode(self) -> WriteMode:
        """The write mode of the table if it has a key."""
        return WRITE_MODES[self.write_mode_name()]

    def upserts(self, *, has_key: bool) -> bool:
        """Tell whether the table keeps one row per key."""
        return DECLARED_MODES[self.write_mode_name(has_key=has_key)].replaces_rows

    def layout(self, table: Table) -> TableLayout:
        """Return a table's layout with the key and write properties that are configured.

        Raises:
            FatalError: a configured key column is none of the table's, or rows cannot be replaced by its key.
        """
        layout = table.layout()
        properties = {**layout.properties, **self.settings.write_properties}
        ids = self.key_columns if self.settings.upsert else ()
        if self.settings.case_insensitive:
            ids = match_names(ids, layout.columns.names)
        if self.settings.upsert and self.keeps_history:
            ids = scd2_key(layout, ids)
        layout = attrs.evolve(layout, properties=properties, id_columns=ids)
        below = sorted(name for name in layout.variants if "." in name)
        if below:
            raise FatalError(
                f"table {table.name} has variants inside other columns ({', '.join(below)}), which are not written; "
                "leave these columns out (debezium.sink.iceberg.excluded-columns), or give the table other types"
            )
        missing = [column for column in layout.id_columns if find_path(layout.columns, column) is None]
        if missing:
            raise FatalError(
                f"table {table.name} has no column {', '.join(missing)}, which is configured as its key; name "
                "columns that it has (primary.key.fields, id-columns), by their present names"
            )
        columns = pa.schema(
            [f.with_type(VARIANT_ARROW_TYPE) if f.name in layout.variants else f for f in layout.columns]
        )
        fault = self.write_mode.find_key_fault(columns, layout.keys)
        if fault is not None:
            raise FatalError(f"table {table.name}: {fault}")
        return layout
