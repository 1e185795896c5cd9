"""Topic -> name of its table or index: the naming rule (pure).

`<namespace>.<prefix><topic>`, after the destination regexp, dots as underscores, then the case option:
the naming rule of Debezium Server Iceberg. Topics that are mapped to a table have it as it is written.
"""

from __future__ import annotations

from collections.abc import Callable

from connector.opensearch.indexes.index_names import to_index_name
from connector.settings import TableSettings
from connector.settings.configdef.regexps import compile_java, translate_replacement
from connector.sink.convert.events import icebergevents

_CASES: dict[str, Callable[[str], str]] = {"keep": str, "upper": str.upper, "lower": str.lower}


def table_name(topic: str, rule: TableSettings) -> str:
    """Return the name of the table that a topic's events go to; without the sink's own namespace."""
    mapped = rule.names.mapped.get(topic)
    if mapped is not None:
        return mapped
    return _CASES[rule.names.case](rule.names.prefix + _apply_regexp(topic, rule).replace(".", "_"))


def target_name(topic: str, rule: TableSettings) -> str:
    """Return the same, or the name of the one table that has all events as text."""
    return icebergevents.TABLE if rule.events_only else table_name(topic, rule)


def _apply_regexp(topic: str, rule: TableSettings) -> str:
    if not rule.names.destination_regexp:
        return topic
    pattern = compile_java(rule.names.destination_regexp)
    return pattern.sub(translate_replacement(rule.names.destination_regexp_replace, pattern), topic)


def index_name(topic: str, rule: TableSettings) -> str:
    """Return the name of the index of a topic's documents: the same rule, in what OpenSearch allows for names."""
    return to_index_name(raw_index_name(topic, rule))


def raw_index_name(topic: str, rule: TableSettings) -> str:
    """Return what the name of a topic's index is made of; several of these may be one name of an index."""
    return rule.names.prefix + _apply_regexp(topic, rule)
