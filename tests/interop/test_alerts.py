"""docker/config -> Prometheus' own promtool: the configuration is valid, and each alert comes when it should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.interop.binlog_server import run_checked
from tests.interop.debian import find_program

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]
CONFIG = Path(__file__).parents[2] / "docker" / "config"
CONNECTOR = {"connector": "c", "task": "0"}
TABLE = {"connector": "c", "table": "a.b"}
DEAD = {"connector": "c", "stage": "TASK_PUT"}
WRONG: dict[str, tuple[str, dict[str, str], str]] = {
    "IcebridgeDown": ("up", {"job": "icebridge", "instance": "sink:8080"}, "0x120"),
    "IcebridgeConnectorFailed": ("kafka_connect_connector_status", {**CONNECTOR, "status": "failed"}, "1x120"),
    "IcebridgeConnectorNotRunning": ("kafka_connect_connector_status", {**CONNECTOR, "status": "unassigned"}, "1x120"),
    "IcebridgeNothingCommitted": ("icebridge_commits_total", {"connector": "c"}, "7x120"),
    "IcebridgeSourceTableStopped": ("icebridge_source_table_stopped", TABLE, "1x120"),
    "IcebridgeTableBehind": ("icebridge_table_lag_seconds", TABLE, "301x120"),
    "IcebridgeDeadLetters": ("icebridge_dead_letters_total", DEAD, "0x115 3x5"),
    "IcebridgeSchemaDrift": ("iceberg_schema_drift_count", TABLE, "2x120"),
    "IcebridgeDeletesPileUp": ("icebridge_table_equality_deletes", TABLE, "1000001x120"),
    "IcebridgeSnapshotAborted": ("debezium_metrics_SnapshotAborted", {"name": "s", "plugin": "iceberg"}, "1x120"),
}
"""The alert -> a metric, its labels, and values of two hours for which it comes."""
HEALTHY = {"IcebridgeDown": "1x120", "IcebridgeDeadLetters": "3x120", "IcebridgeNothingCommitted": "0+1x120"}
"""Values for which it does not come, where these are not zeros."""


def _promtool(*arguments: str) -> str:
    return run_checked((find_program("promtool", "prometheus"), *arguments))


def _test_rules(folder: Path, values: dict[str, str], expected: list[str]) -> str:
    """Have promtool see which alerts there are after two hours of these values."""
    series = [{"series": 'icebridge_offset_lag{connector="c",topic="t"}', "values": "5x120"}]  # in health too
    for alert, (metric, labels, _) in WRONG.items():
        names = ",".join(f'{key}="{value}"' for key, value in labels.items())
        series.append({"series": f"{metric}{{{names}}}", "values": values[alert]})
    counts = [{"expr": f'count(ALERTS{{alertstate="firing",alertname="{name}"}})', "eval_time": "2h"} for name in WRONG]
    samples: list[dict[str, Any]] = [{**one, "exp_samples": []} for one in counts]
    for one, name in zip(samples, WRONG, strict=True):
        one["exp_samples"] = [{"labels": "{}", "value": 1}] if name in expected else []
    test = {"interval": "1m", "input_series": series, "promql_expr_test": samples}
    path = folder / "test.yml"
    path.write_text(json.dumps({"rule_files": [str(CONFIG / "alerts.yml")], "tests": [test]}))
    return _promtool("test", "rules", str(path))


def test_prometheus_takes_the_configuration() -> None:
    """The stack's file is valid, and so are the rules that it names."""
    assert "10 rules found" in _promtool("check", "config", str(CONFIG / "prometheus.yml"))


def test_every_alert_has_a_case() -> None:
    """Each rule is in the table above."""
    (group,) = yaml.safe_load((CONFIG / "alerts.yml").read_text("utf-8"))["groups"]
    assert {rule["alert"] for rule in group["rules"]} == WRONG.keys()


@pytest.mark.parametrize("alert", WRONG)
def test_an_alert_comes_alone(alert: str, tmp_path: Path) -> None:
    """What goes wrong raises its own alert and no other."""
    values = {name: HEALTHY.get(name, "0x120") for name in WRONG} | {alert: WRONG[alert][2]}
    _test_rules(tmp_path, values, [alert])


def test_no_alert_comes_of_health(tmp_path: Path) -> None:
    """Healthy values, old dead letters among them, raise none."""
    _test_rules(tmp_path, {name: HEALTHY.get(name, "0x120") for name in WRONG}, [])
