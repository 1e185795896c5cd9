"""properties -> LineageSettings: whether and how runs are told to OpenLineage.

Names: Debezium's, and those of Debezium Server. Its `debezium.source.openlineage.integration.enabled` is none of them:
it is about the lineage of the database's connector.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, SERVERS, TEXT, InvalidValue, ValueType, split_list

T = TypeVar("T")
_PREFIX = "openlineage.integration."
_SERVER_PREFIX = f"debezium.source.{_PREFIX}"


def _parse_pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = tuple((key.strip(), value.strip()) for key, _, value in (item.partition("=") for item in split_list(text)))
    if not all(key and value for key, value in pairs):
        raise InvalidValue("{} is no list of pairs", "write key=value, several separated by commas")
    return pairs


_PAIRS = ValueType("list", _parse_pairs)

ENABLED = Option(
    name=f"{_PREFIX}enabled",
    kind=BOOLEAN,
    default=False,
    importance="low",
    doc="Report runs to OpenLineage: start, datasets, end. Needs the extra icebridge[lineage].",
    aliases=("debezium.sink.iceberg.openlineage-enabled",),
)
CONFIG_FILE = Option(
    name=f"{_PREFIX}config.file.path",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Configuration of the OpenLineage client (openlineage.yml); else its own places and OPENLINEAGE_* variables.",
    aliases=(f"{_SERVER_PREFIX}config.file.path",),
)
NAMESPACE = Option(
    name=f"{_PREFIX}job.namespace",
    kind=TEXT,
    default=None,
    importance="low",
    doc="Namespace of the job.",
    shown="<topic.prefix> of a source, <name> of a sink",
    aliases=(f"{_SERVER_PREFIX}job.namespace",),
)
DESCRIPTION = Option(
    name=f"{_PREFIX}job.description",
    kind=TEXT,
    default="",
    importance="low",
    doc="Description of the job.",
    aliases=(f"{_SERVER_PREFIX}job.description",),
)
TAGS = Option(
    name=f"{_PREFIX}job.tags",
    kind=_PAIRS,
    default=(),
    importance="low",
    doc="Tags of the job, key=value, comma separated.",
    aliases=(f"{_SERVER_PREFIX}job.tags",),
)
OWNERS = Option(
    name=f"{_PREFIX}job.owners",
    kind=_PAIRS,
    default=(),
    importance="low",
    doc="Owners of the job, name=type, comma separated.",
    aliases=(f"{_SERVER_PREFIX}job.owners",),
)
SERVERS_OPTION = Option(
    name=f"{_PREFIX}dataset.kafka.bootstrap.servers",
    kind=SERVERS,
    default="",
    importance="low",
    doc="Brokers by which topics are named.",
    shown="<bootstrap.servers>",
    aliases=(f"{_SERVER_PREFIX}dataset.kafka.bootstrap.servers",),
)
OPTIONS: tuple[Option[object], ...] = (ENABLED, CONFIG_FILE, NAMESPACE, DESCRIPTION, TAGS, OWNERS, SERVERS_OPTION)


@attrs.frozen
class LineageSettings:
    """How runs are told; `servers` and `namespace` are empty where the connector's own are meant."""

    enabled: bool = False
    config_file: Path | None = None
    namespace: str = ""
    description: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    owners: tuple[tuple[str, str], ...] = ()
    servers: str = ""


def build(reader: ConfigReader) -> LineageSettings:
    """Read the part about lineage; faults go to the reader.

    Where it is off, what Debezium has for its own lineage is none: it may be by variables that only Debezium's process
    has.
    """
    enabled = reader.get(ENABLED)

    def read(option: Option[T]) -> T:
        entry = reader.entry(option)
        is_theirs = entry is not None and entry.key.startswith(_SERVER_PREFIX)
        return reader.peek(option) if is_theirs and not enabled else reader.get(option)

    path = read(CONFIG_FILE)
    return LineageSettings(
        enabled=enabled,
        config_file=None if path is None else Path(path),
        namespace=read(NAMESPACE) or "",
        description=read(DESCRIPTION),
        tags=read(TAGS),
        owners=read(OWNERS),
        servers=read(SERVERS_OPTION),
    )
