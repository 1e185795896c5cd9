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


def test_validate_asks_the_brokers_of_a_source(tmp_path: Path) -> None:
    """That they answer is said, and that they do not is an error; where there are none to ask, a note says so."""
    file = tmp_path / "source.properties"

    def told(*lines: str) -> tuple[int, str]:
        own = ("connector.class=IcebergSource", "topic.prefix=p", f"iceberg.catalog.warehouse={tmp_path}", *lines)
        file.write_text("\n".join(own))
        done = CliRunner().invoke(main, ["validate", "--connect", str(file)])
        return done.exit_code, done.output

    with Brokers({0: (0, 7), 3: (1, 7), 18: (0, 0)}) as cluster:
        code, output = told(f"bootstrap.servers={cluster.servers}")
        assert (code, "Kafka: the brokers answer" in output) == (0, True), output
    code, output = told(f"bootstrap.servers={cluster.servers}")
    assert (code, "no bootstrap server answers" in output) == (1, True), output
    code, output = told("debezium.sink.type=opensearch", "connection.url=http://search:9200")
    assert (code, "there is none to ask" in output) == (0, True), output
