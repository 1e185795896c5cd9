"""Truncates that a job met, and what is known of tables' sources -> what they empty: for the job's next round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from connector.runtime.topic_partitions import TopicPartition
from connector.sink.fold.watermarks import GROWN_PARTITION
from connector.sink.model.destination import TableRegistry
from connector.sink.model.plan import BatchPlan, TablePlan
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncate_scope import TableSources, TruncateScope, find_source_columns, scope_truncates
from connector.sink.model.truncates import Truncate
from serde.events.positions.log_positions import strip_log_name

FindSources = Callable[[TablePlan, str, Iterable[Truncate]], TableSources]
"""A table's plan, its name and truncates of it -> what is known of where its rows are from."""


def find_new_truncates(
    plan: BatchPlan, names: list[str], truncates: Mapping[int, Collection[Truncate]], find_sources: FindSources
) -> dict[int, TruncateScope]:
    """Decide what truncates empty that the job did not know of, by index of their table.

    One that cannot be carried out is logged, and empties nothing.
    """
    log, scopes = structlog.get_logger(), {}
    for index, own in truncates.items():
        table, name = plan.tables[index], names[index]
        if not table.upsert or table.history:
            log.warning("a truncate is ignored: the table keeps every event or version", table=name)
        elif table.truncated == TruncateScope():
            prefix = plan.events.add_fields_prefix
            columns = find_source_columns(table.layout.columns.names, plan.events.add_fields, prefix)
            scopes[index] = scope_truncates(own, find_sources(table, name, own), columns, prefix)
            for source in scopes[index].refused:
                log.warning(
                    "a truncate is refused: the rows of its source table cannot be identified",
                    table=name,
                    source=source,
                )
    return scopes


def find_table_sources(
    plan: BatchPlan,
    table: TablePlan,
    name: str,
    progress: Iterable[SourceProgress],
    truncates: Iterable[Truncate],
    tables: TableRegistry,
    offsets: Collection[TopicPartition],
) -> TableSources:
    """Return what is known of where a table's rows are from, with what was seen now and truncates of it.

    `offsets` are the topic-partitions that were read before this batch.
    """
    known = {
        strip_log_name(source)
        for (_, partition), marks in table.watermarks.items()
        if partition != GROWN_PARTITION
        for source in marks
    }
    come = {strip_log_name(source) for one in progress if one.table == table.index for source in one.marks}
    come |= {each.source for each in truncates} | tables.find_other_sources(name)
    routed = plan.routing is not None
    read = {*offsets, *plan.ranks}
    targets = {} if routed else tables.find({topic for topic, _ in read})
    topics = {topic for topic, own in targets.items() if own == name}
    partitions = sum(routed or topic in topics for topic, _ in read)
    all_known = table.dated and (table.base is None or bool(table.watermarks))
    return TableSources(frozenset(known | come), frozenset(topics), all_known, routed, partitions)
