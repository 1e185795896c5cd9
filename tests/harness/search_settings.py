"""Address of a cluster -> settings of a sink that fills it, read as a properties file is."""

from __future__ import annotations

from pathlib import Path

from connector.settings import SinkSettings, load
from connector.settings.opensearch.documents import OpenSearchSettings


def load_search_settings(folder: Path, url: str, *lines: str) -> OpenSearchSettings:
    """Read the settings of a sink into indexes from a file with these lines more."""
    own = ("bootstrap.servers=localhost:9092", "topics=t", "debezium.sink.type=opensearch", f"connection.url={url}")
    file = folder / "search.properties"
    file.write_text("\n".join((*own, "debezium.sink.iceberg.warehouse=warehouse", *lines)), encoding="utf-8")
    settings = load([file], environ={})
    assert isinstance(settings, SinkSettings)
    assert isinstance(settings.destination, OpenSearchSettings)
    return settings.destination
