"""partition terms, and Java expressions with their replacements."""

from __future__ import annotations

import pytest

from connector.errors import ConfigError
from connector.settings import load
from connector.settings.configdef.regexps import compile_java, translate_replacement
from connector.settings.iceberg.new_tables import sort_order
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm, parse_partition_term, split_terms
from connector.settings.iceberg.new_tables.sort_order import SortTerm
from connector.settings.source.settings import load_source

BASE = {"bootstrap.servers": "localhost:9092", "topics": "t", "debezium.sink.iceberg.warehouse": "/w"}


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("region", PartitionTerm("region", "identity")),
        ("address.city", PartitionTerm("address.city", "identity")),
        ("day(ts)", PartitionTerm("ts", "day")),
        ("days(ts)", PartitionTerm("ts", "day")),
        ("YEARS( ts )", PartitionTerm("ts", "year")),
        ("months(ts)", PartitionTerm("ts", "month")),
        ("hour(ts)", PartitionTerm("ts", "hour")),
        ("bucket(id,16)", PartitionTerm("id", "bucket", 16)),
        ("truncate( name , 4 )", PartitionTerm("name", "truncate", 4)),
    ],
)
def test_term(text: str, term: PartitionTerm) -> None:
    """A column, a time unit of a column in singular or plural, or a bucket or truncation with its width."""
    assert parse_partition_term(text) == term


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a b",
        "day()",
        "day(ts",
        "day(a,1)",
        "week(a)",
        "bucket(a)",
        "bucket(16,a)",
        "bucket(a,0)",
        "bucket(a,-1)",
        "bucket(a,2147483648)",
        "truncate(a,1,2)",
        "day(hour(ts))",
        "a,b",
    ],
)
def test_no_term(text: str) -> None:
    """Anything else is refused without repeating it."""
    with pytest.raises(ValueError, match=r"term|column|transform") as caught:
        parse_partition_term(text)
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("a", SortTerm(PartitionTerm("a", "identity"))),
        ("a DESC", SortTerm(PartitionTerm("a", "identity"), descending=True, nulls_first=False)),
        ("bucket(a, 4) asc nulls last", SortTerm(PartitionTerm("a", "bucket", 4), nulls_first=False)),
        ("day(a) desc NULLS FIRST", SortTerm(PartitionTerm("a", "day"), descending=True)),
    ],
)
def test_sort_term(text: str, term: SortTerm) -> None:
    """A sort term is a partition term, a direction, and where nulls go; without words it is as Iceberg has it."""
    assert sort_order.parse_sort_term(text) == term


@pytest.mark.parametrize("text", ["", "a up", "a desc nulls", "nulls first first", "bucket(a)"])
def test_no_sort_term(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match=r"term|transform|bucket"):
        sort_order.parse_sort_term(text)


def test_terms_split_outside_parentheses() -> None:
    """A comma inside parentheses does not end a term."""
    assert split_terms("day(ts), bucket(id,16) ,region,") == ("day(ts)", "bucket(id,16)", "region")


def test_partition_by_per_table() -> None:
    """partition-by holds for all tables, partition-by.<table> for one, whose name may have dots."""
    key = "debezium.sink.iceberg.partition-by"
    table = load([], BASE | {key: "day(ts), bucket(id,16)", f"{key}.testc.inventory.customers": "region"}, {}).table
    assert table.new_tables.partition_by == ("day(ts)", "bucket(id,16)")
    assert table.new_tables.partition_by_table == {"testc.inventory.customers": ("region",)}


@pytest.mark.parametrize(
    ("pattern", "replacement", "topic", "expected"),
    [
        (r"_ptt\d+", "_combined", "a_ptt1", "a_combined"),
        (r"(\w+)\.(\w+)$", "$2.$1", "p.a.b", "p.b.a"),
        (r"(a)", "$12", "xa", "xa2"),
        (r"(?<t>b)", "${t}${t}", "ab", "abb"),
        ("a", r"\$1\\", "a", "$1\\"),
        ("a", "$0$0", "a", "aa"),
        ("a", "", "banana", "bnn"),
    ],
)
def test_java_replacement(pattern: str, replacement: str, topic: str, expected: str) -> None:
    """A Java expression and replacement give in Python what String.replaceAll gives."""
    java = compile_java(pattern)
    assert java.sub(translate_replacement(replacement, java), topic) == expected


@pytest.mark.parametrize("replacement", ["$", "a\\", "$1", "${x}", "${"])
def test_broken_java_replacement(replacement: str) -> None:
    """A replacement that Java would refuse is refused."""
    with pytest.raises(ValueError, match=r"lone|group"):
        translate_replacement(replacement, compile_java("a"))


@pytest.mark.parametrize("terms", ["day(ts),hour(ts)", "a,b,a", "bucket(a, 4), bucket(a,4)", "year(ts), days(ts)"])
def test_terms_that_no_spec_has_together_are_refused(terms: str) -> None:
    """Before anything runs: Iceberg refuses them when the table is made."""
    with pytest.raises(ConfigError, match=r"twice|two of year"):
        load([], BASE | {"debezium.sink.iceberg.partition-by": terms}, {})
    apart = "day(ts), hour(other), a, bucket(a, 4), bucket(a, 8), truncate(a, 2)"
    assert load([], BASE | {"debezium.sink.iceberg.partition-by": apart}, {})


def test_what_one_table_is_partitioned_by_has_the_name_of_its_other_options() -> None:
    """`iceberg.table.<t>.partition-by` stands beside `.id-columns` in any file; our own name wins over it."""
    given = {"iceberg.table.default.t.id-columns": "id", "iceberg.table.default.t.partition-by": "day(ts)"}
    assert load([], BASE | given, {}).table.new_tables.partition_by_table == {"default.t": ("day(ts)",)}
    both = given | {"debezium.sink.iceberg.partition-by.default.t": "hour(ts)"}
    assert load([], BASE | both, {}).table.new_tables.partition_by_table == {"default.t": ("hour(ts)",)}


@pytest.mark.parametrize(
    ("key", "text"),
    [("debezium.sink.iceberg.write.format.default", "PARQUET"), ("debezium.sink.iceberg.type", "HADOOP")],
)
def test_words_that_iceberg_takes_in_any_case(key: str, text: str) -> None:
    """A file that Debezium Server runs with is not refused for them."""
    settings = load([], BASE | {key: text}, {})
    assert text.lower() in (settings.table.new_tables.write_format, settings.catalog.properties.get("type"))


@pytest.mark.parametrize(
    "key", ["snapshot.mode", "decimal.handling.mode", "time.precision.mode", "binary.handling.mode"]
)
def test_words_that_debezium_takes_in_any_case(key: str) -> None:
    """Debezium compares the words of its options without case."""
    word = {"snapshot.mode": "NO_DATA", "time.precision.mode": "Adaptive"}.get(key, "")
    word = word or {"decimal.handling.mode": "STRING", "binary.handling.mode": "Base64"}[key]
    source = {"connector.class": "IcebergSource", "bootstrap.servers": "h:1", "topic.prefix": "p"}
    both = [
        load_source([], source | {"iceberg.catalog.warehouse": "/w", key: text}, {}) for text in (word, word.lower())
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize("servers", ["h:0", "h:65536", "h:9092,g:99999"])
def test_a_port_that_there_is_not_is_a_fault(servers: str) -> None:
    """It is told at once, not after the time that brokers have to answer."""
    with pytest.raises(ConfigError, match="write ports from 1 to 65535"):
        load([], BASE | {"bootstrap.servers": servers}, {})
