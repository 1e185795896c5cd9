"""Events -> the tables that they say themselves: by a field, by regular expressions on it, or by a template (pure).

Where topics alone decide (the usual case) nothing here runs; see `destinations.naming`. Names here may have dots: what
stands before the last one is the namespace. Rules: Iceberg Kafka Connect's record router (`iceberg.tables.route-field`,
`iceberg.tables.dynamic-enabled`, `iceberg.table.<t>.route-regex`) and the JDBC sink's `collection.name.format`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.conversion import convert
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.settings.configdef.regexps import compile_java
from connector.settings.iceberg.routing import RouteSettings, split_template
from connector.sink.model.plan import BatchPlan, FieldRoutes
from serde.arrays import Ints, column_at
from serde.events.changes import Changes, slice_changes, take_changes
from serde.events.kinds.cloudevents import is_cloud_event, unwrap_cloud_events
from serde.events.kinds.operations import OP_TRUNCATE
from serde.faults import RecordError
from serde.messages import MessageBlock

_AFTER = "after."


@attrs.frozen(eq=False)
class RoutedChanges:
    """Changes that go to one table: those from `start` up to, not including, `stop`, of changes in order of tables."""

    table: str
    ordered: Changes
    start: int
    stop: int

    @property
    def change(self) -> Changes:
        """The table's own changes."""
        if (self.start, self.stop) == (0, len(self.ordered.rows)):
            return self.ordered
        return slice_changes(self.ordered, self.start, self.stop)

    def is_before(self, other: RoutedChanges) -> bool:
        """Tell whether the changes of another table come right after these."""
        return self.ordered is other.ordered and self.stop == other.start


def route_changes(
    change: Changes, block: MessageBlock, topic: str, plan: BatchPlan, routes: FieldRoutes
) -> tuple[list[RoutedChanges], list[RecordError], TaskMetrics]:
    """Split changes by table, tables that convert them alike in a row.

    Also gives the records that name no table, and counts those that are for none of them.

    Cost: one sort by route value, one gather; nothing per row in Python.
    """
    if routes.whole:
        return [RoutedChanges(name, change, 0, len(change.rows)) for name in routes.whole], [], TaskMetrics()
    value = _read_route_value(change, block, topic, routes.rule)
    if value is None and not routes.rule.dynamic:
        return [], [], TaskMetrics(ignored=len(change.rows), unrouted=frozenset({topic}))
    if value is None:
        reason = "the event has no route field"
        return [], [RecordError(int(row), "TASK_PUT", reason) for row in change.rows], TaskMetrics()
    coded = value.dictionary_encode()
    matched = [_match_tables(str(name), routes.rule) for name in coded.dictionary.to_pylist()]
    firsts = [tables[0] if tables else None for tables in matched]
    order = sorted(range(len(matched)), key=lambda code: _find_conversion(firsts[code], plan, routes))
    codes = np.append(np.argsort(order), -1)[np.asarray(coded.indices.fill_null(-1), np.int64)]
    routed: list[RoutedChanges] = []
    faults: list[RecordError] = []
    ignored = 0
    for code, ordered, start, stop in group_by_code(change, codes):
        tables = matched[order[code]] if code >= 0 else ()
        if tables:
            routed += [RoutedChanges(table, ordered, start, stop) for table in tables]
        elif routes.rule.dynamic:
            reason = "the route field has no value" if code < 0 else "the route field's value names no table"
            faults += [RecordError(int(row), "TASK_PUT", reason) for row in ordered.rows[start:stop]]
        else:
            ignored += stop - start
    return routed, faults, TaskMetrics(ignored=ignored)


def _find_conversion(table: str | None, plan: BatchPlan, routes: FieldRoutes) -> int:
    """Return the number of how a table converts changes; -1 where it converts none, or as no other one does."""
    index = routes.find_table(table)
    alike = None if index is None else plan.conversions[index]
    return -1 if alike is None else alike


def gather_alike(
    routed: Sequence[RoutedChanges], plan: BatchPlan, routes: FieldRoutes
) -> Iterator[Sequence[RoutedChanges]]:
    """Yield changes in their order: those in a row whose tables convert them alike together, others alone."""
    group: list[RoutedChanges] = []
    before = -1
    for one in routed:
        alike = _find_conversion(one.table, plan, routes)
        if group and not (0 <= alike == before and group[-1].is_before(one)):
            yield group
            group = []
        group.append(one)
        before = alike
    if group:
        yield group


def group_by_code(change: Changes, codes: Ints) -> Iterator[tuple[int, Changes, int, int]]:
    """Return the codes, and which changes have each: those from a place up to another one of changes in their order."""
    if (codes == codes[0]).all():
        yield int(codes[0]), change, 0, len(codes)
        return
    sequence = np.argsort(codes, kind="stable")
    ordered = take_changes(change, sequence)
    bounds = np.flatnonzero(np.diff(codes[sequence], prepend=-2)).tolist()
    for start, stop in zip(bounds, [*bounds[1:], len(codes)], strict=True):
        yield int(codes[sequence[start]]), ordered, start, stop


def _match_tables(value: str, rule: RouteSettings) -> tuple[str, ...]:
    if rule.dynamic:
        name = rule.name_table(value)
        return () if name is None else (name,)
    return tuple(name for name, regexp in rule.tables if regexp is not None and compile_java(regexp).fullmatch(value))


def _read_route_value(change: Changes, block: MessageBlock, topic: str, rule: RouteSettings) -> pa.StringArray | None:
    """Return the text that decides for each change, null where a record does not have it all."""
    places = np.searchsorted(block.rows, change.rows)
    # Of CloudEvents the attributes can be named, and what an envelope has of them.
    events = (block.fields, unwrap_cloud_events(block).fields) if is_cloud_event(block) else (block.fields,)
    if rule.template is None:
        return _read_text(rule.field or "", change, events, places)
    pieces: list[pa.Array | pa.Scalar] = []
    for literal, paths in split_template(rule.template):
        if literal:
            pieces.append(pa.scalar(literal))
        if paths == ("topic",):
            pieces.append(pa.scalar(topic.replace(".", "_")))
        elif paths:
            texts = [text for path in paths if (text := _read_text(path, change, events, places)) is not None]
            if not texts:
                return None
            pieces.append(pc.coalesce(*texts))
    whole = pc.binary_join_element_wise(*pieces, pa.scalar(""), null_handling="emit_null")
    return whole if isinstance(whole, pa.Array) else pa.array([whole.as_py()] * len(change.rows), pa.string())


def _include_truncates(change: Changes) -> pa.StructArray:
    """Return the rows; a truncate has none, and is told by the fields that unwrapping added."""
    truncates = change.op == OP_TRUNCATE
    if not truncates.any():
        return change.row
    gone = pa.array(np.asarray(change.row.is_null()) & ~truncates)
    columns = [change.row.field(place) for place in range(change.row.type.num_fields)]
    return pa.StructArray.from_arrays(columns, fields=list(change.row.type), mask=gone)


def _read_text(path: str, change: Changes, events: Sequence[pa.StructArray], places: Ints) -> pa.StringArray | None:
    """Return a field of the event as it came, else of its row, as text; `after` of a delete is the row that it had."""
    column = next((column for event in events if (column := column_at(event, path)) is not None), None)
    if column is not None and len(places) != len(column):
        column = column.take(pa.array(places))
    rows = _include_truncates(change)
    text = _to_text(column_at(rows, path) if column is None else column)
    is_envelope = {"before", "after"} & set(events[-1].type.names)
    if not path.startswith(_AFTER) or not is_envelope or not change.deleted.any():
        return text
    gone = _to_text(column_at(rows, path.removeprefix(_AFTER)))
    if gone is None:
        return text
    text = pa.nulls(len(gone), pa.string()) if text is None else text
    return pc.if_else(pc.and_(pa.array(change.deleted), text.is_null()), gone, text)


def _to_text(column: pa.Array | None) -> pa.StringArray | None:
    if column is None or pa.types.is_nested(column.type) or pa.types.is_null(column.type):
        return None
    return convert(column, pa.string())[0]
