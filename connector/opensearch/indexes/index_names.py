"""Names of topics and tables, and times of documents -> names of indexes (pure; times a column at a time).

Patterns of names are those of Kafka Connect's TimestampRouter, whose words are Java's (SimpleDateFormat).
"""

from __future__ import annotations

import re

import attrs
import pyarrow as pa
import pyarrow.compute as pc

TOPIC_PLACEHOLDER, TIMESTAMP_PLACEHOLDER = "${topic}", "${timestamp}"
_DATE_PARTS = {"yyyy": ("%Y", "[0-9]{4}"), "MM": ("%m", "[0-9]{2}"), "dd": ("%d", "[0-9]{2}"), "HH": ("%H", "[0-9]{2}")}
_PATTERN_PARTS = re.compile(r"yyyy|MM|dd|HH|[._-]")
_MAX_NAME_BYTES = 255


def to_index_name(name: str) -> str:
    """Return a name in small letters, its dots kept; what no index name may have becomes `_`, or is cut off."""
    index = re.sub(r'[\\/*?"<>| ,#:]', "_", name.lower())
    index = re.sub(r"^[-_+]+", "", index) or "index"
    return index.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")


@attrs.frozen
class IndexNamePattern:
    """How names are built: `name` has both placeholders, `stamp` is the format of the time."""

    name: str
    stamp: str

    def split_at_timestamp(self, base: str) -> tuple[str, str]:
        """Return what stands before and after the time, for the documents of one name."""
        before, _, after = self.name.partition(TIMESTAMP_PLACEHOLDER)
        before, after = before.replace(TOPIC_PLACEHOLDER, base), after.replace(TOPIC_PLACEHOLDER, base)
        return (to_index_name(before) if before else "", after)

    def wildcard(self, base: str) -> str:
        """Return the wildcard that fits all indexes of a name."""
        before, after = self.split_at_timestamp(base)
        return f"{before}*{after}"

    def regexp(self, base: str) -> re.Pattern[str]:
        """Return the expression that fits them and no others."""
        before, after = self.split_at_timestamp(base)
        words = "".join(
            _DATE_PARTS[part][1] if part in _DATE_PARTS else re.escape(part)
            for part in _PATTERN_PARTS.findall(self.stamp)
        )
        return re.compile(re.escape(before) + words + re.escape(after))

    def indexes(self, base: str, times: pa.TimestampArray) -> pa.StringArray:
        """Return the name of the index of each time (UTC); null where there is none."""
        before, after = self.split_at_timestamp(base)
        words = "".join(
            _DATE_PARTS[part][0] if part in _DATE_PARTS else part for part in _PATTERN_PARTS.findall(self.stamp)
        )
        return pc.binary_join_element_wise(before, pc.strftime(times, words), after, "", null_handling="emit_null")
