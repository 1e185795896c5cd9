"""text of a sort-by option -> sort terms: a partition term, then `asc` or `desc`, then `nulls first` or `nulls last`.

Iceberg's own words and defaults (its Spark DDL, `WRITE ORDERED BY`): ascending with nulls first, descending with nulls
last.
"""

from __future__ import annotations

import re

import attrs

from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm, parse_partition_term, terms_type

SORT_HINT = "write a column or a transform of one as in partition-by, then asc or desc, then nulls first or nulls last"
_TERM = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE)


@attrs.frozen
class SortTerm:
    """One field of a sort order."""

    by: PartitionTerm
    descending: bool = False
    nulls_first: bool = True

    @property
    def column(self) -> str:
        """The column that it goes by."""
        return self.by.column


def parse_sort_term(term: str) -> SortTerm:
    """Read one term; raises ValueError with what is wrong, without the term itself."""
    match = _TERM.fullmatch(term.strip())
    if match is None:
        raise ValueError("a term is empty")
    descending = (match[2] or "asc").lower() == "desc"
    nulls_first = not descending if match[3] is None else match[3].lower() == "first"
    return SortTerm(parse_partition_term(match[1]), descending, nulls_first)


SORT_TERMS = terms_type(parse_sort_term, "sort terms", SORT_HINT)
