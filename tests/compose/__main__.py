"""docker/compose.yaml -> the stack up, docs/tutorial.md done in it, a changed row seen everywhere: `make compose-test`.

With docker the real images are used. Else Compose's own binary (COMPOSE) talks to podman, with the stand-ins of
tests/compose/stand_ins.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.compose.env import DOCKER, read_env
from tests.compose.stack import ROOT, CommandError, Stack, by_docker, by_podman
from tests.compose.tables import open_catalog, read_customers
from tests.compose.tutorial import START, STOP, Step, read_steps

SERVICES = (
    *("kafka", "registry", "postgres", "connect", "connector", "s3", "catalog"),
    *("opensearch", "prometheus", "sink", "source", "search-sink"),
)
"""What the tutorial starts at once, but for Grafana, which has no stand-in."""
NAME = "Anne Marie"
CHANGE = re.compile(r"SET first_name = '(?P<name>[^']+)' WHERE id = (?P<id>\d+)")
CLUSTER = "SPARK_MASTER=spark://"


def fetch(url: str) -> Any:
    """Return the JSON that an address answers with."""
    with urllib.request.urlopen(f"http://{url}", timeout=10) as answer:
        return json.loads(answer.read())


def wait_for(what: str, look: Callable[[], Any], timeout_s: float = 120) -> Any:
    """Look until something true is found; tell how long that took, and return it. TimeoutError: nothing was."""
    began, seen = time.monotonic(), None
    while time.monotonic() - began < timeout_s:
        try:
            if seen := look():
                print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)  # noqa: T201
                return seen
        except (OSError, LookupError, CommandError) as error:
            seen = error
        time.sleep(0.5)
    raise TimeoutError(f"{what}: not within {timeout_s} s; last: {seen!r}")


def follow_tutorial(stack: Stack) -> None:
    """Give the tutorial's commands to a shell as they are written, and see that each tells what it should."""
    for step in read_steps():
        if step.command == START and stack.stand_ins:
            start(stack)
        elif step.command.startswith(STOP):
            break
        else:
            follow(stack, step)


def follow(stack: Stack, step: Step) -> None:
    """Run a step until it tells what it should; see what a change does everywhere."""
    command = step.command
    for key, port in read_env().items():
        if key.endswith("_PORT"):
            command = command.replace(f"http://localhost:{port}/", f"http://localhost:{stack.env[key]}/")
    wait_for(command[:100], lambda: step.tells in stack.run(command))
    if changed := CHANGE.search(step.command):
        see_the_change(stack, int(changed["id"]), changed["name"])
    if CLUSTER in step.command:
        apps = wait_for("the cluster has it", lambda: fetch(f"127.0.0.1:{stack.env['SPARK_PORT']}/json/")["activeapps"])
        print(f"  {[app['name'] for app in apps]}", flush=True)  # noqa: T201


def see_the_end(stack: Stack) -> None:
    """See that the deleted row is gone everywhere, and that each connector ends well when it is told to stop."""
    catalog = open_catalog(stack.env)
    wait_for("the deleted row left Iceberg", lambda: 1004 not in read_customers(catalog))
    index = f"127.0.0.1:{stack.env['OPENSEARCH_PORT']}/dbserver1.inventory.customers/_search"
    wait_for("the deleted row left OpenSearch", lambda: NAME not in json.dumps(fetch(index)))
    for name in ("sink", "source", "search-sink"):
        stack.compose("stop", "--timeout", "60", name)
        (line,) = stack.compose("ps", "--all", "--format", "json", name).splitlines()
        assert json.loads(line)["ExitCode"] == 0, line
        print(f"{name} ended with 0", flush=True)  # noqa: T201


def start(stack: Stack) -> None:
    """Start what has stand-ins."""
    began = time.monotonic()
    stack.compose("up", "--no-build", "--detach", "--wait", "--wait-timeout", "540", *SERVICES)
    print(f"up and healthy: {time.monotonic() - began:.1f} s", flush=True)  # noqa: T201


def see_the_change(stack: Stack, key: int, name: str) -> None:
    """See a changed row in Iceberg, in OpenSearch and in Prometheus, which answers each question of the dashboard."""
    catalog = open_catalog(stack.env)
    wait_for("the change is in Iceberg", lambda: read_customers(catalog).get(key) == name)
    index = f"127.0.0.1:{stack.env['OPENSEARCH_PORT']}/dbserver1.inventory.customers/_search"
    wait_for("the change is in OpenSearch", lambda: name in json.dumps(fetch(index)))
    updates = "sum(debezium_metrics_TotalNumberOfUpdateEventsSeen)"
    wait_for("Prometheus has counted it", lambda: float(ask(stack, updates)[0]["value"][1]) >= 1)
    down = [each["metric"]["instance"] for each in ask(stack, "up") if each["value"][1] != "1"]
    assert down == []
    health = wait_for("the alerts were evaluated", lambda: find_evaluated_alerts(stack))
    assert set(health.values()) == {"ok"}, health
    dashboard = json.loads((DOCKER / "grafana" / "icebridge.json").read_text("utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            answer = ask(stack, target["expr"].replace("$connector", ".*").replace("$__rate_interval", "1m"))
            print(f"  {panel['title']}: {len(answer)} series", flush=True)  # noqa: T201


def ask(stack: Stack, question: str) -> list[dict[str, Any]]:
    """Return what Prometheus answers."""
    query = urllib.parse.urlencode({"query": question})
    answer = fetch(f"127.0.0.1:{stack.env['PROMETHEUS_PORT']}/api/v1/query?{query}")
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result


def find_evaluated_alerts(stack: Stack) -> dict[str, str]:
    """Return the health of each alert; nothing until all were evaluated."""
    groups = fetch(f"127.0.0.1:{stack.env['PROMETHEUS_PORT']}/api/v1/rules")["data"]["groups"]
    health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    return {} if "unknown" in health.values() else health


def main() -> None:
    """Try the stack; everything is gone afterwards, its log is in build/compose.log."""
    binary = os.environ.get("COMPOSE")
    if binary is None and not _docker_answers():
        sys.exit("neither docker nor COMPOSE, the path of docker compose's binary: see docs/tests.md")
    with by_podman(binary) if binary else by_docker() as stack:
        # A run that was killed has left its volumes, in which Debezium's offsets are of another database.
        stack.compose("--profile", "*", "down", "--volumes", "--timeout", "20")
        try:
            follow_tutorial(stack)
            see_the_end(stack)
        finally:
            log = ROOT / "build" / "compose.log"
            log.parent.mkdir(exist_ok=True)
            log.write_text(stack.compose("--profile", "*", "logs", "--no-color"))
            stack.compose("--profile", "*", "down", "--volumes", "--timeout", "20")


def _docker_answers() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "info"], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    main()
