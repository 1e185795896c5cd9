"""plan -> deserializers of keys and values: one per connector and process, with what they know of schemas."""

from __future__ import annotations

from functools import lru_cache, partial

import attrs

from connector.kafka.registry.registries import open_registry
from connector.settings import EventSettings
from connector.settings.converters.apicurio import ApicurioSettings
from connector.settings.converters.glue import GlueSettings
from connector.settings.converters.message_format import AnyRegistry
from connector.sink.model.plan import BatchPlan
from serde.events.unwrapping import UnwrapSettings
from serde.formats import FORMATS
from serde.frames import ConfluentFrame, Frame, GlueFrame
from serde.wire_format import Deserializer, FetchSchema, ReadOptions, WireFormat

_TRANSACTION_FIELDS = frozenset(
    {"op", "transaction.id", "transaction.total_order", "source.db", "source.schema", "source.table"}
)


@attrs.frozen(eq=False)
class Converters:
    """How this connector reads keys and values."""

    key: Deserializer
    value: Deserializer


@lru_cache(maxsize=8)
def _build_converters(events: EventSettings, wanted: frozenset[str], *, any_case: bool) -> Converters:
    return Converters(
        _build_deserializer(events.key_format, events.key_registry, None, events),
        _build_deserializer(events.value_format, events.value_registry, wanted, events, any_case=any_case),
    )


def _build_deserializer(
    name: str,
    registry: AnyRegistry | None,
    wanted: frozenset[str] | None,
    events: EventSettings,
    *,
    any_case: bool = False,
) -> Deserializer:
    wire_format, texts = FORMATS[name], (events.temporal_as_text, events.decimal_as_text)
    fetch = _schema_fetcher(wire_format, registry)
    return wire_format.deserializer(ReadOptions(wanted, fetch, *texts, _frame(registry), any_case))


def _schema_fetcher(wire_format: WireFormat, registry: AnyRegistry | None) -> FetchSchema | None:
    if registry is None or wire_format.registry_type is None:
        return None
    return partial(open_registry(registry).fetch_schema, schema_type=wire_format.registry_type)


def _frame(registry: AnyRegistry | None) -> Frame:
    if isinstance(registry, GlueSettings):
        return GlueFrame()
    return ConfluentFrame(registry.id_bytes) if isinstance(registry, ApicurioSettings) else ConfluentFrame(guids=True)


def find_converters(plan: BatchPlan) -> Converters:
    """Return the converters of a connector; they, and what they know of schemas, live as long as the process."""
    paths = plan.routing.rule.paths if plan.routing is not None else frozenset[str]()
    wanted = unwrap_settings(plan, keep_before=True).wanted | paths
    return _build_converters(plan.events, wanted, any_case=plan.case_insensitive)


def transaction_converter(plan: BatchPlan) -> Deserializer:
    """Return the converter of values for who wants to know the transactions of events, and nothing else."""
    return _build_converters(plan.events, _TRANSACTION_FIELDS, any_case=False).value


@lru_cache(maxsize=8)
def schema_change_converter(events: EventSettings) -> Deserializer:
    """Return the converter of values for who reads schema changes, all of their fields."""
    return _build_deserializer(events.value_format, events.value_registry, None, events)


def unwrap_settings(plan: BatchPlan, *, keep_before: bool) -> UnwrapSettings:
    """Return how envelopes become rows; `keep_before`: deletes keep their image."""
    return UnwrapSettings(plan.events.add_fields, plan.events.add_fields_prefix, plan.op_field, keep_before)
