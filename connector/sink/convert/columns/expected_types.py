"""A table's columns -> the types that messages are read by, and the columns that are read as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import pyarrow as pa

from connector.iceberg.types.values.conversion import schemaless_type
from connector.kafka.consumer.consumer_records import ConsumerRecords
from connector.sink.convert.columns.found_columns import (
    INSTANT_COLUMNS,
    find_plain_columns,
    find_shared_plain,
    is_instant,
)
from connector.sink.model.plan import BatchPlan, TablePlan
from serde.connect.text_columns import find_text_types
from serde.events.changes import Changes
from serde.events.images.cassandra_rows import cassandra_types, is_of_cassandra
from serde.events.images.cells import CELL_SET, cell_types, is_of_cells
from serde.events.kinds.cloudevents import is_cloud_event, unwrap_cloud_events
from serde.events.kinds.event_kind import is_envelope
from serde.events.kinds.sourceless import IMAGES
from serde.json.empty_columns import prune_rows
from serde.messages import DecodedMessages, MessageBlock

_CELL_WORD = f'"{CELL_SET}"'.encode()
"""What every cell has; text within a message has no such quotes."""
_MOST_WITHOUT_CELLS = 16


def find_expected_types(table: TablePlan, plan: BatchPlan) -> pa.StructType:
    """Return what messages without schema are read by; a variant takes what there is.

    Where tables follow their events only texts become dates and the like; else numbers do too. Columns are known by
    their earlier names too: events of before the renaming may still come.
    """
    columns, variants = table.layout.columns, table.layout.variants
    known = [field.with_type(schemaless_type(field.type)) if plan.evolve else field for field in columns]
    # Such times are numbers in most events: as texts they would be no milliseconds any more.
    instants = {name for name in INSTANT_COLUMNS if is_instant(table.layout, name)}
    known = [field.with_type(pa.null()) if field.name in instants else field for field in known]
    known = [field.with_type(pa.null()) if field.name in variants else field for field in known]
    by_name = {field.name: field for field in known}
    earlier = [(old, now) for old, now in table.renames.items() if now in by_name and old not in by_name]
    return pa.struct([*known, *(by_name[now].with_name(old) for old, now in earlier)])


def find_routed_types(plan: BatchPlan) -> pa.StructType | None:
    """Return what messages without schema are read by that name their tables: of any type, and what is empty stays.

    Which of their tables have such a column only routing tells (`keep_known_empties`).
    """
    if plan.routing is None or not plan.nested_columns:
        return None
    return pa.struct([(name, pa.null()) for name in sorted(plan.nested_columns)])


def keep_known_empties(change: Changes, table: TablePlan | None, plan: BatchPlan) -> Changes:
    """Return changes of a table without empty lists and objects of columns, or fields of those, that it does not have.

    Whoever read them did not know of the table, or not which of the names that differ in case are its columns.
    Changes with a schema stay as they are: it tells of what the list is.
    """
    if change.optional or not (plan.case_insensitive or find_routed_types(plan) is not None):
        return change
    known = pa.struct([]) if table is None else find_expected_types(table, plan)
    return attrs.evolve(change, row=prune_rows(change.row, known))


def expect_cells(known: pa.StructType, messages: pa.Array, *, upsert: bool = False) -> pa.StructType:
    """Return the types that values, or keys, are read by where their columns are cells (`images.cells`).

    All of a topic's are, or none is, so that its first event that seems to have some says it: one in front of it may
    have no row, or be unreadable. `upsert`: values are for a table of one row per key, where Cassandra's cells are
    plain columns (`images.cassandra_rows`).
    """
    places = np.flatnonzero(np.asarray(messages.is_valid()))[:_MOST_WITHOUT_CELLS].tolist()
    texts = (messages[place].as_py() for place in places)
    first = next((text for text in texts if _CELL_WORD in text), None)
    if upsert and is_of_cassandra(first):
        return cassandra_types(known)
    return cell_types(known) if is_of_cells(first) else known


def find_text_columns(run: ConsumerRecords, table: TablePlan | None, plan: BatchPlan) -> frozenset[str]:
    """Return the columns that the table has as text, and the types that are text for this connector.

    And the columns that another tool has filled with what messages have. Instants, which are read as microseconds,
    keep their digits as text on the way to columns of nanoseconds too.
    """
    types = find_text_types(run.connector, plan.events.temporal_as_text)
    if table is None:
        return types | _find_routed_plain(plan)
    return types | find_own_texts(table, any_case=plan.case_insensitive)


def find_own_texts(table: TablePlan, *, any_case: bool = False) -> frozenset[str]:
    """Return of these columns what the table alone tells."""
    layout = table.layout
    own = layout.text_columns | layout.instant_ns_columns
    own |= {old for old, now in table.renames.items() if now in own and old not in layout.columns.names}
    return own | find_plain_columns(layout, any_case=any_case)


def find_value_texts(values: DecodedMessages) -> frozenset[str]:
    """Return the columns that are text in all values with a schema that have them.

    The schema of a key does not tell the connector, by which some dates and times are text; that of an envelope does.
    """
    texts, others = set[str](), set[str]()
    for block in values.blocks:
        for field in _list_row_fields(block) if block.schema_id else ():
            (texts if pa.types.is_string(field.type) else others).add(field.name)
    return frozenset(texts - others)


def _list_row_fields(block: MessageBlock) -> Iterator[pa.Field]:
    """Return the columns of the rows, or images, of a block."""
    kind = unwrap_cloud_events(block).fields.type if is_cloud_event(block) else block.fields.type
    images = [field.type for field in kind if field.name in IMAGES] if is_envelope(kind) else [kind]
    yield from (field for image in images if pa.types.is_struct(image) for field in image)


def _find_routed_plain(plan: BatchPlan) -> frozenset[str]:
    """Return the plain columns of the tables that events may go to: one reading of an event is for all of its tables.

    None while it may name others, which will have dates.
    """
    routes = plan.routing
    named = () if routes is None or routes.rule.dynamic else [name for name, _ in routes.rule.tables]
    if routes is None or not named or not all(name in routes.known for name in named):
        return frozenset()
    layouts = [plan.tables[routes.known[name]].layout for name in named]
    return find_shared_plain(layouts, any_case=plan.case_insensitive)
