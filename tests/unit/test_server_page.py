"""What the page's script makes of answers, by Node with as much of a document as it needs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")

_DOCUMENT = """
class Node {
  constructor(tag) { this.tag = tag; this.children = []; this.listeners = {}; this.text = ""; }
  append(...more) { this.children.push(...more); for (const one of more) this[one.tag] = one; }
  replaceChildren(...only) { this.children = only; }
  setAttribute() {}
  addEventListener(name, listener) { this.listeners[name] = listener; }
  set textContent(text) { this.text = String(text); this.children = []; }
  get textContent() { return this.text; }
  get tHead() { return this.thead; }
  get tBodies() { return [this.tbody]; }
  all(tag) { return [...(this.tag === tag ? [this] : []), ...this.children.flatMap((one) => one.all(tag))]; }
  told() { return [this.text, ...this.children.map((one) => one.told())].filter(Boolean).join("\\n"); }
}
const places = { connectors: new Node("main"), when: new Node("span"), told: new Node("p") };
const document = {
  createElement: (tag) => new Node(tag), createElementNS: (_, tag) => new Node(tag), getElementById: (id) => places[id],
};
const setInterval = () => {};
const given = JSON.parse(process.argv[1]);
const fetch = async (path, { method } = {}) => method
  ? { ok: given.refusal === null, status: 500, json: async () => given.refusal }
  : { ok: true, json: async () => ({ connectors: [given.connector] }) };
"""
_END = """
(async () => {
  await load();
  const pause = places.connectors.all("button").find((one) => one.text === "Pause");
  if (pause) await pause.listeners.click();
  console.log(JSON.stringify({ shown: places.connectors.told(), told: places.told.told() }));
})();
"""
NOTHING: dict[str, Any] = {
    "name": "shop",
    "kind": "sink",
    "state": "RUNNING",
    "reason": "",
    "checks": [],
    "lag": {},
    "tables": {},
    "recent": [],
    "per_minute": [0] * 60,
    "dead_letters": {},
    "last_dead_letters": [],
    "dead_letter_topic": "",
    "snapshots": {},
}
AWAY = {"name": "shop-broker", "is_up": False, "data": {"reason": "no broker answers"}}


def _show(connector: dict[str, Any], refusal: dict[str, Any] | None = None) -> dict[str, str]:
    """What a person reads of a connector, and what of pressing Pause."""
    page = files("connector.server").joinpath("page/index.html").read_text("utf-8")
    script = re.findall(r"<script>(.*)</script>", page, re.DOTALL)[0].replace('"use strict";', "")
    given = json.dumps({"connector": {**NOTHING, **connector}, "refusal": refusal})
    code = ["node", "-e", _DOCUMENT + script + _END, given]
    answer: dict[str, str] = json.loads(subprocess.run(code, capture_output=True, check=True, timeout=60).stdout)
    return answer


@pytest.mark.parametrize("state", ["RUNNING", "UNASSIGNED", "RESTARTING"])
def test_what_it_waits_for_is_told(state: str) -> None:
    """Also while it starts: that may last until the brokers are back."""
    assert "shop-broker: no broker answers" in _show({"state": state, "checks": [AWAY]})["shown"]


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_who_rests_waits_for_nothing(state: str) -> None:
    """Nothing is amiss with it."""
    assert "no broker answers" not in _show({"state": state, "checks": [AWAY]})["shown"]


def test_a_lag_that_nobody_knows_is_not_told_as_none() -> None:
    """Without brokers it is what was seen last, or not known."""
    assert "0\nrecords that wait (lag)" in _show({"lag": {"t": 0}})["shown"]
    last = "records that waited when the brokers last answered"
    assert f"7\n{last}" in _show({"lag": {"t": 7}, "checks": [AWAY]})["shown"]
    assert f"?\n{last}" in _show({"checks": [AWAY]})["shown"]


def test_files_of_tables_are_told_where_somebody_counted_them() -> None:
    """Also before the first commit; what is not known is no 0."""
    files = {"db.orders": {"data_files": 41, "equality_delete_files": 7, "orphan_bytes": 12345}}
    shown = _show({"files": files})["shown"]
    assert "Files, when maintenance looked last" in shown
    assert "db.orders\n41\n-\n7\n-\n-\n-\n-\n12,345" in shown
    assert "Files, when" not in _show({})["shown"]


def test_a_sources_tables_that_stopped_are_told_with_the_reason() -> None:
    """The connector itself runs on."""
    shown = _show({"kind": "source", "stopped": {"db.orders": "FatalError: no key"}})["shown"]
    assert "Tables that stopped, the others continue" in shown
    assert "db.orders\nFatalError: no key" in shown
    assert "Tables that stopped" not in _show({"kind": "source", "stopped": {}})["shown"]


def test_a_button_that_did_nothing_says_so() -> None:
    """With the message of the answer; what works says nothing."""
    assert _show({}, {"error_code": 500, "message": "Request timed out."})["told"] == (
        "shop: pause failed: Request timed out."
    )
    assert _show({})["told"] == ""
