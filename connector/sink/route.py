"""Topic -> table name: the naming rule (pure).

`<namespace>.<prefix><topic>`, after the destination regexp, dots as underscores, then the case option
(seed `debezium-iceberg-consumers`, "Iceberg Table Naming Rule").
"""

from __future__ import annotations

from collections.abc import Callable

from connector.settings import TableSettings
from connector.settings.regexps import compiled, template

_CASES: dict[str, Callable[[str], str]] = {"keep": str, "upper": str.upper, "lower": str.lower}


def table_name(topic: str, rule: TableSettings) -> str:
    """Give the name, without namespace, of the table that a topic's events go to."""
    destination = topic
    if rule.destination_regexp:
        pattern = compiled(rule.destination_regexp)
        destination = pattern.sub(template(rule.destination_regexp_replace, pattern), topic)
    return _CASES[rule.case](rule.prefix + destination.replace(".", "_"))
