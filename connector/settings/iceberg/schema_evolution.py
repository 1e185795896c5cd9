"""properties -> SchemaEvolution: whether tables are made and get columns, and whether a column that lacks is a stop.

Names: the JDBC sink's `schema.evolution` stands for both of ours, which say the same of one thing each.
"""

from __future__ import annotations

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import BOOLEAN, one_of
from connector.settings.iceberg.routing import AUTO_CREATE

FIELD_ADDITION = Option(
    name="debezium.sink.iceberg.allow-field-addition",
    kind=BOOLEAN,
    default=True,
    importance="medium",
    doc="Add new columns and widen types as events need it; false leaves the schema as it is.",
)
EVOLUTION = Option(
    name="schema.evolution",
    kind=one_of("none", "validate-only", "basic", any_case=True),
    default=None,
    importance="low",
    doc="What tables lack: basic creates it, none leaves it out, validate-only stops; instead of the keys for either.",
)
OPTIONS: tuple[Option[object], ...] = (FIELD_ADDITION, EVOLUTION)


@attrs.frozen
class SchemaEvolution:
    """What is done about what tables lack: `requires_fields` stops the sink where events have more fields than they."""

    creates: bool = True
    adds_fields: bool = True
    requires_fields: bool = False


def build(reader: ConfigReader) -> SchemaEvolution:
    """Read it; faults go to the reader."""
    named = reader.get(EVOLUTION)
    if named is None:
        return SchemaEvolution(reader.get(AUTO_CREATE), reader.get(FIELD_ADDITION))
    allowed = named == "basic"
    for option in (AUTO_CREATE, FIELD_ADDITION):
        entry = reader.entry(option)
        # Below all layers are the defaults of Iceberg Kafka Connect.
        if entry is not None and entry.layer >= 0 and reader.get(option) != allowed:
            reader.add_fault(entry, f"contradicts {EVOLUTION.name}={named}", "take one of them out")
    return SchemaEvolution(allowed, allowed, named == "validate-only")
