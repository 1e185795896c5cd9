"""Files of a connector, or of a worker -> a process that runs it and answers by HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

from connector.cli.arguments import load_settings, load_sink_settings, parse_overrides
from connector.errors import ConfigError
from connector.runtime.spark.session import start_session
from connector.runtime.spark.session_builder import StartingSession
from connector.settings import SinkSettings, SourceSettings
from connector.settings.configdef.property_files import read_properties
from connector.settings.source.settings import is_source


def run_connector(files: tuple[Path, ...], overrides: tuple[str, ...], *, once: bool) -> None:
    """Run a sink or source until it is stopped; with `once` to the end of what is there, which nobody asks by HTTP.

    Raises:
        ConnectorError: the configuration cannot be used, or what ended the run.
    """
    settings = load_settings(files, overrides)
    # What follows is imported beside the start of the JVM: each takes more than a second.
    with start_session(settings, lists_classes=True) as starting:
        if isinstance(settings, SourceSettings):
            _run_source(settings, starting, files, overrides, once=once)
        else:
            _run_sink(settings, starting, files, overrides, once=once)


def _run_sink(
    settings: SinkSettings,
    starting: StartingSession,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    *,
    once: bool,
) -> None:
    from connector.sink.runner import run_sink

    terminal = sys.stderr.isatty()
    if once:
        run_sink(settings, once=True, terminal=terminal, starting=starting)
        return
    from connector.server.process import monitor_sink

    with monitor_sink(settings, read_properties(files, parse_overrides(overrides))) as monitor:
        run_sink(settings, once=False, terminal=terminal, monitor=monitor, starting=starting)


def _run_source(
    settings: SourceSettings,
    starting: StartingSession,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    *,
    once: bool,
) -> None:
    from connector.source.runner import run_source

    terminal = sys.stderr.isatty()
    if once:
        run_source(settings, once=True, terminal=terminal, starting=starting)
        return
    from connector.server.process import monitor_source

    with monitor_source(settings, read_properties(files, parse_overrides(overrides))) as monitor:
        run_source(settings, once=False, terminal=terminal, monitor=monitor, starting=starting)


def serve_connectors(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Run the connectors that are created by REST, and those that were there; raises as `run_connector`."""
    config = read_properties(files, parse_overrides(overrides))
    if is_source(files, parse_overrides(overrides)):
        raise ConfigError("this is the configuration of a source; give the files of a worker, and create it by REST")
    # What a sink must name, and a worker need not.
    named = {"topics", "topics.regex", "debezium.source.topic.prefix"} & config.keys()
    settings = load_sink_settings(files, overrides if named else (*overrides, "topics=unused"))
    with start_session(settings, lists_classes=True) as starting:
        from connector.server.serving import serve

        serve(settings, config, starting)
