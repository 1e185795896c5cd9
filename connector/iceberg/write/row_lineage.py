"""The layout of a table's files -> that of files which also say which rows of before theirs are (pure)."""

from __future__ import annotations

import attrs
import orjson

from connector.iceberg.catalog.table_layout import TableLayout


def with_lineage(layout: TableLayout) -> TableLayout:
    """Return the layout of data files that keep the rows' ids and sequence numbers (spec, "Row Lineage")."""
    document = orjson.loads(layout.schema_json)
    lineage = [
        {"id": 2147483540, "name": "_row_id", "required": False, "type": "long"},
        {"id": 2147483539, "name": "_last_updated_sequence_number", "required": False, "type": "long"},
    ]
    schema = {**document, "fields": document["fields"] + lineage}
    return attrs.evolve(layout, schema_json=orjson.dumps(schema).decode())
