"""Files of a connector, or of a worker -> a process that runs it and answers by HTTP."""

from __future__ import annotations

import sys
from pathlib import Path

from connector.cli.arguments import load_settings, load_sink_settings, parse_overrides
from connector.server.process import monitor_sink, monitor_source, read_config
from connector.server.serving import serve
from connector.settings import SourceSettings
from connector.sink.runner import run_sink
from connector.source.runner import run as run_source


def run_connector(files: tuple[Path, ...], overrides: tuple[str, ...], *, once: bool) -> None:
    """Run a sink or source until it is stopped; with `once` to the end of what is there, which nobody asks by HTTP.

    Raises:
        ConnectorError: the configuration cannot be used, or what ended the run.
    """
    settings, terminal = load_settings(files, overrides), sys.stderr.isatty()
    config = read_config(files, parse_overrides(overrides))
    if isinstance(settings, SourceSettings):
        if once:
            run_source(settings, once=True, terminal=terminal)
            return
        with monitor_source(settings, config) as source_monitor:
            run_source(settings, once=False, terminal=terminal, monitor=source_monitor)
    elif once:
        run_sink(settings, once=True, terminal=terminal)
    else:
        with monitor_sink(settings, config) as sink_monitor:
            run_sink(settings, once=False, terminal=terminal, monitor=sink_monitor)


def serve_connectors(files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Run the connectors that are created by REST, and those that were there; raises as `run_connector`."""
    config = read_config(files, parse_overrides(overrides))
    # What a sink must name, and a worker need not.
    named = {"topics", "topics.regex", "debezium.source.topic.prefix"} & config.keys()
    serve(load_sink_settings(files, overrides if named else (*overrides, "topics=unused")), config)
