"""files, overrides -> the settings of a sink or a source: the way of reading that both share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from connector import redaction
from connector.errors import ConfigError
from connector.settings.configdef import property_files
from connector.settings.configdef.common import DEBEZIUM_SERVER_SINK
from connector.settings.configdef.config_providers import ConfigProviders, UnresolvedReference
from connector.settings.configdef.option import Prefix
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader

Settings = TypeVar("Settings")


def load_settings(
    files: Sequence[Path],
    overrides: Mapping[str, str] | None,
    environ: Mapping[str, str] | None,
    *,
    rename: Callable[[Mapping[str, Entry]], dict[str, Entry]],
    names: Sequence[str],
    prefixes: tuple[Prefix, ...],
    build: Callable[[ConfigReader], Settings],
) -> Settings:
    """Read properties files, the later over the earlier, and the overrides over all of them.

    Args:
        files: the files.
        overrides: given on the command line.
        environ: answers `${env:NAME}`; the process's environment by default.
        rename: returns the entries under the names that they have here.
        names: all option names.
        prefixes: all families.
        build: makes the settings; faults go to the reader.

    Raises:
        ConfigError: one line per fault.
    """
    merged = property_files.merge_files(files, overrides or {})
    given = rename(merged.entries)
    reader = ConfigReader(
        files=[str(path) for path in files],
        entries=given,
        providers=ConfigProviders(os.environ if environ is None else environ),
        declared=frozenset(names) | frozenset(name for name in given if DEBEZIUM_SERVER_SINK.owns(name)),
        prefixes=prefixes,
        complete=not merged.faults,
        faults=list(merged.faults),
        notes=list(merged.notes),
    )
    _remember_secrets(reader)
    settings = build(reader)
    if reader.faults:
        texts = [redaction.redact(fault.text) for fault in sorted(reader.faults)]
        raise ConfigError(*texts, notes=tuple(reader.notes))
    return settings


def _remember_secrets(reader: ConfigReader) -> None:
    """Have no log show the secrets that were given, wherever they turn up later."""
    for key, entry in reader.entries.items():
        with suppress(UnresolvedReference):
            redaction.remember_secret(key, reader.providers.resolve(entry.text, bare=True).strip())
