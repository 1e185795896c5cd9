"""`icebridge validate --connect` -> what the brokers offer, or why they cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from connector.cli.main import main
from tests.servers.brokers import EVENT_HUBS, FUTURE, KAFKA_4, Brokers


@pytest.mark.parametrize(("offered", "code"), [(KAFKA_4, 0), (EVENT_HUBS, 0), (FUTURE, 1)], ids=["4", "azure", "far"])
def test_validate_asks_the_brokers(offered: dict[int, tuple[int, int]], code: int, tmp_path: Path) -> None:
    """The versions that will be spoken are printed, what is missing is a note, and what cannot be read an error."""
    with Brokers(offered) as cluster:
        file = tmp_path / "sink.properties"
        file.write_text(
            f"name=asked\ntopics=t\nbootstrap.servers={cluster.servers}\ndebezium.sink.iceberg.warehouse={tmp_path}\n"
        )
        done = CliRunner().invoke(main, ["validate", "--connect", str(file)])
        assert done.exit_code == code, done.output
        assert ("Kafka: records are read by" in done.output) == (code == 0)
        assert ("leader epoch ends" in done.output) == (offered is EVENT_HUBS)
        if code:
            assert f"broker {cluster.servers} cannot be read: Fetch" in done.output
        assert CliRunner().invoke(main, ["validate", str(file)]).exit_code == 0
