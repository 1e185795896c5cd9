"""Times of documents -> what of them stands in names of indexes (pure, a column at a time).

Formats are those of Kafka Connect's TimestampRouter, whose words are Java's (SimpleDateFormat).
"""

from __future__ import annotations

import re

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from connector.opensearch.indexes.index_names import index_of

TOPIC, STAMP = "${topic}", "${timestamp}"
_WORDS = {"yyyy": ("%Y", "[0-9]{4}"), "MM": ("%m", "[0-9]{2}"), "dd": ("%d", "[0-9]{2}"), "HH": ("%H", "[0-9]{2}")}
_PARTS = re.compile(r"yyyy|MM|dd|HH|[._-]")


@attrs.frozen
class Pattern:
    """How names are made: `name` with both placeholders, `stamp` the words of the time."""

    name: str
    stamp: str

    def before_and_after(self, base: str) -> tuple[str, str]:
        """Give what stands before and after the time, for the documents of one name."""
        before, _, after = self.name.partition(STAMP)
        before, after = before.replace(TOPIC, base), after.replace(TOPIC, base)
        return (index_of(before) if before else "", after)

    def any_of(self, base: str) -> str:
        """Give the wildcard that fits all indexes of a name."""
        before, after = self.before_and_after(base)
        return f"{before}*{after}"

    def regexp(self, base: str) -> re.Pattern[str]:
        """Give the expression that fits them and no others."""
        before, after = self.before_and_after(base)
        words = "".join(_WORDS[part][1] if part in _WORDS else re.escape(part) for part in _PARTS.findall(self.stamp))
        return re.compile(re.escape(before) + words + re.escape(after))

    def indexes(self, base: str, times: pa.TimestampArray) -> pa.StringArray:
        """Give the name of the index of each time (UTC); null where there is none."""
        before, after = self.before_and_after(base)
        words = "".join(_WORDS[part][0] if part in _WORDS else part for part in _PARTS.findall(self.stamp))
        return pc.binary_join_element_wise(before, pc.strftime(times, words), after, "", null_handling="emit_null")
