"""Settings of sessions on clusters, as values."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from connector.runtime.spark.cluster_security import is_open, secure_cluster
from connector.runtime.spark.submitted import is_submitted, settle_submitted
from tests.unit.test_runtime_spark import _conf


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({"spark.master": "yarn"}, {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}),
        ({"spark.master": "k8s://h:1"}, {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}),
        (
            {"spark.master": "spark://h:7077", "spark.authenticate.secret": "s"},
            {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"},
        ),
        ({"spark.master": "spark://h:7077"}, {}),
        ({"spark.master": "yarn", "spark.authenticate": "false"}, {}),
        ({"spark.master": "yarn", "spark.network.crypto.enabled": "false"}, {"spark.authenticate": "true"}),
        ({"spark.master": "yarn", "spark.ssl.rpc.enabled": "true"}, {"spark.authenticate": "true"}),
    ],
    ids=lambda value: " ".join(f"{key}={text}" for key, text in value.items()) or "nothing",
)
def test_machines_authenticate_each_other(given: Mapping[str, str], added: Mapping[str, str]) -> None:
    """Where Spark can make or has the secret, traffic is authenticated and encrypted; the user's word wins."""
    assert secure_cluster(given) == added


def test_an_open_cluster_is_told() -> None:
    """A standalone cluster without a secret is open, unless its user said that this is meant; this machine is not."""
    assert is_open(_conf(spark_master="spark://h:7077"))
    assert not is_open(_conf(spark_master="spark://h:7077", spark_authenticate="false"))
    assert not is_open(_conf(spark_master="yarn"))
    assert not is_open(_conf(spark_master="local-cluster[2,1,1024]"))
    assert not {key for key in _conf() if key.startswith(("spark.authenticate", "spark.network"))}


def test_spark_submit_is_known_by_its_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that spark-submit started has the port of its JVM in the environment."""
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert not is_submitted()
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert is_submitted()


def test_what_a_running_jvm_cannot_change_is_left_out() -> None:
    """Memory and options of a JVM that runs are spark-submit's alone."""
    settled = settle_submitted({"spark.driver.memory": "2g", "a": "b"}, {})
    assert settled == {"a": "b"}
    assert settle_submitted({"spark.driver.memory": "4g"}, {"spark.driver.memory": "4g"}) != {}
