"""Declared options -> Kafka Connect's documents of plugins: which there are, their options, faults of a config.

Pure but for `${...}` references, which are looked up as at a start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import attrs

from connector.errors import ConfigError
from connector.redaction import SecretScope
from connector.server.connectors.port import Kind
from connector.server.errors import RestError
from connector.server.rest.documents import mask_config
from connector.settings import SinkSettings, SourceSettings, load
from connector.settings.configdef.common import OptionScope
from connector.settings.configdef.option import Option
from connector.settings.connector_class import ICEBERG_SINK_CLASS, OPENSEARCH_SINK_CLASS, SOURCE_CLASS
from connector.settings.connector_class import find_class as find_own_class
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.settings.sink import options
from connector.settings.source import settings as source_settings
from connector.settings.source.settings import is_source, load_source

_OVERRIDE = "-X: "
_TYPES = {
    "int": "INT",
    "long": "LONG",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "list": "LIST",
    "password": "PASSWORD",
}
_REQUIRED = frozenset({"name", "connector.class"})


@attrs.frozen
class Plugin:
    """A kind of connector under the class name that its configurations have."""

    name: str
    kind: Kind
    scopes: Sequence[OptionScope]

    @property
    def options(self) -> list[tuple[str, Option[object]]]:
        """Its options with their chapters; each once."""
        by_name: dict[str, tuple[str, Option[object]]] = {}
        for scope in self.scopes:
            for option in scope.options:
                by_name.setdefault(option.name, (scope.title, option))
        return list(by_name.values())


@lru_cache(maxsize=1)
def all_plugins() -> tuple[Plugin, ...]:
    """Return the kinds of connectors that there are."""
    return (
        Plugin(ICEBERG_SINK_CLASS, "sink", options.scopes_of("iceberg")),
        Plugin(OPENSEARCH_SINK_CLASS, "sink", options.scopes_of("opensearch")),
        Plugin(SOURCE_CLASS, "source", source_settings.SCOPES),
    )


def find_plugin(name: str) -> Plugin | None:
    """Return a plugin by its class, or the end of it, with or without `Connector`; None for any other."""
    for plugin in all_plugins():
        short = plugin.name.rpartition(".")[2]
        if name in {plugin.name, short, short.removesuffix("Connector")}:
            return plugin
    return None


def find_class(settings: SinkSettings | SourceSettings) -> str:
    """Return the class that a configuration of these settings has, whether it says so or not."""
    if isinstance(settings, SourceSettings):
        return SOURCE_CLASS
    return all_plugins()[1].name if isinstance(settings.destination, OpenSearchSettings) else ICEBERG_SINK_CLASS


def list_plugins() -> list[dict[str, str]]:
    """Return the plugins as Connect lists them."""
    return [{"class": one.name, "type": one.kind, "version": version("icebridge")} for one in all_plugins()]


def plugin_config(name: str) -> list[dict[str, Any]]:
    """Return the options of a plugin; RestError 404 for an unknown one."""
    plugin = find_plugin(name)
    if plugin is None:
        raise RestError(404, f"Unknown plugin {name}.")
    return [_definition(title, option, place) for place, (title, option) in enumerate(plugin.options, 1)]


def check_class(config: Mapping[str, str]) -> None:
    """Raise RestError 400 for properties that name no connector of ours."""
    given = config.get("connector.class")
    if not given:
        shown = ", ".join(f"{key}={text}" for key, text in sorted(mask_config(config).items()))
        raise RestError(400, f"Connector config {{{shown}}} contains no connector type")
    if find_own_class(given) is None:
        there = ", ".join(one.name for one in all_plugins())
        raise RestError(
            400,
            f"Failed to find any class that implements Connector and which name matches {given}, available connectors "
            f"are: {there}",
        )


def load_config(config: Mapping[str, str]) -> SinkSettings | SourceSettings:
    """Return the settings of a connector's properties. Raises ConfigError with every fault."""
    return load_source([], config) if is_source([], config) else load([], config)


def refuse_invalid(error: ConfigError) -> RestError:
    """Return Connect's answer to a configuration with faults."""
    faults = [text.removeprefix(_OVERRIDE) for text in error.faults]
    lines = "\n".join(faults)
    return RestError(
        400,
        f"Connector configuration is invalid and contains the following {len(faults)} error(s):\n{lines}\n"
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`",
    )


def validate_config(
    name: str, config: Mapping[str, str], complete: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> dict[str, Any]:
    """Return what is wrong with properties, option by option; `complete` adds what the worker's own file says."""
    check_class(config)
    plugin = find_plugin(name)
    if plugin is None:
        raise RestError(404, f"Unknown plugin {name}.")
    given = config["connector.class"]
    if find_plugin(given) not in (plugin, None):
        raise RestError(400, f"Included connector type {given} does not match request type {name}")
    with SecretScope() as scope:
        try:
            faults, shown = _find_faults(complete(config)), mask_config(config)
        finally:
            scope.forget()
    entries, counted = [], 0
    for place, (title, option) in enumerate(plugin.options, 1):
        own = [text for one in option.names for text in faults.get(one, ())]
        counted += len(own)
        entries.append(_validate_option(_definition(title, option, place), shown, option.names, own))
    known = {one for _, option in plugin.options for one in option.names}
    for key in sorted(faults.keys() - known):
        counted += len(faults[key])
        entries.append(_validate_option(_unknown_definition(key, len(entries) + 1), shown, (key,), faults[key]))
    groups = [scope.title for scope in plugin.scopes if scope.options]
    return {"name": plugin.name, "error_count": counted, "groups": groups, "configs": entries}


def _find_faults(config: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what is wrong with properties, by their names."""
    faults: dict[str, list[str]] = {}
    try:
        load_config(config)
    except ConfigError as error:
        for text in error.faults:
            key, _, fault = text.removeprefix(_OVERRIDE).partition(": ")
            faults.setdefault(key, []).append(fault)
    return faults


def _validate_option(
    definition: Mapping[str, Any], shown: Mapping[str, str], names: Sequence[str], errors: Sequence[str]
) -> dict[str, Any]:
    value = next((shown[one] for one in names if one in shown), definition["default_value"])
    validation = {
        "name": definition["name"],
        "value": value,
        "recommended_values": [],
        "errors": list(errors),
        "visible": True,
    }
    return {"definition": dict(definition), "value": validation}


def _definition(title: str, option: Option[object], place: int) -> dict[str, Any]:
    return {
        "name": option.name,
        "type": "PASSWORD" if option.secret else _TYPES.get(option.kind.name, "STRING"),
        "required": option.name in _REQUIRED,
        "default_value": option.default_text or None,
        "importance": option.importance.upper(),
        "documentation": option.doc,
        "group": title,
        "width": "NONE",
        "display_name": option.name,
        "dependents": [],
        "order": place,
    }


def _unknown_definition(key: str, place: int) -> dict[str, Any]:
    return {
        "name": key,
        "type": "STRING",
        "required": False,
        "default_value": None,
        "importance": "LOW",
        "documentation": "",
        "group": None,
        "width": "NONE",
        "display_name": key,
        "dependents": [],
        "order": place,
    }
