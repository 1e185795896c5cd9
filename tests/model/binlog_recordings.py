"""recorded files of MariaDB and MySQL -> Kafka records, and the rows that the servers had at the end.

Format: tests/fixtures/README.md (all topics of a variant in one packed file).
"""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from typing import Any

from tests.model.binlog_rows import lose_nulls
from tests.model.recordings import FIXTURES, Record, parse_line

SERVERS = ("mariadb", "mysql")
VARIANTS = ("schema", "unwrap", "plain", "avro")
DATABASE = "shop"


def topic(server: str, variant: str, table: str) -> str:
    """The name of a table's topic."""
    return f"{server}_{variant}.{DATABASE}.{table}"


def side_topic(server: str, variant: str) -> str:
    """The name of the topic of schema changes; that of transactions goes on with `.transaction`."""
    return f"{server}_{variant}"


def load(server: str, variant: str, table: str) -> list[Record]:
    """The records of one table, by partition and offset."""
    wanted = topic(server, variant, table)
    return [record for record in load_all(server, variant) if record.topic == wanted]


@lru_cache(maxsize=8)
def load_all(server: str, variant: str) -> tuple[Record, ...]:
    """All records of a variant, those of side topics too."""
    packed = (FIXTURES / server / f"{variant}.jsonl.gz").read_bytes()
    return tuple(parse_line(json.loads(line)) for line in gzip.decompress(packed).decode().splitlines())


def state(server: str, variant: str, table: str) -> list[dict[str, Any]]:
    """The rows at the end, as far as a variant tells of them."""
    lines = (FIXTURES / server / f"{table}.json").read_text("utf-8").splitlines()
    return lose_nulls(variant, table, [json.loads(line) for line in lines])


def writer_schemas(server: str) -> dict[int, str]:
    """The writer schemas of the Avro variant by the ids in its frames."""
    found = json.loads(gzip.decompress((FIXTURES / server / "avro_schemas_by_id.json.gz").read_bytes()))
    return {int(number): json.dumps(schema) for number, schema in found.items()}
