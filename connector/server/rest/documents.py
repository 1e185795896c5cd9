"""Connectors -> the JSON documents of Kafka Connect: info, status, tasks, offsets. Pure; no secret leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from connector.redaction import MASK, is_secret, redact
from connector.server.connectors.port import Connector, ConnectorOffset
from connector.settings.configdef.config_providers import REFERENCE


def mask_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return properties without secrets; references to where they are kept stay as they are."""
    return {
        key: MASK if text and is_secret(key) and not REFERENCE.fullmatch(text) else redact(text)
        for key, text in config.items()
    }


class MaskedValue(Exception):
    """A mask stands where there is no secret that it could stand for."""


def unmask(config: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return properties in which what `mask_config` made of those `before` is as it was.

    Raises:
        MaskedValue: another value is a mask, or has one where a part of the value before it was masked.
    """
    shown = mask_config(before)
    kept = {key: before[key] if shown.get(key) == text else text for key, text in config.items()}
    partly = {key for key, text in shown.items() if text != MASK and MASK in text and MASK not in before[key]}
    masks = sorted(key for key, text in kept.items() if text == MASK or (key in partly and MASK in text))
    if masks:
        raise MaskedValue(f"{MASK} stands for a secret, and there is none of {', '.join(masks)}; give the value itself")
    return kept


def connector_info(connector: Connector) -> dict[str, Any]:
    """Return a connector with its properties and tasks."""
    tasks = [{"connector": connector.name, "task": 0}] if connector.lifecycle.has_task else []
    return {"name": connector.name, "config": mask_config(connector.config), "tasks": tasks, "type": connector.kind}


def connector_status(connector: Connector, worker_id: str, version: str) -> dict[str, Any]:
    """Return the state of a connector and its task; a failure is the task's, as in Connect."""
    state = connector.lifecycle.state
    own = {"state": "RUNNING" if state == "FAILED" else state, "worker_id": worker_id, "version": version}
    tasks = [task_status(connector, worker_id, version)] if connector.lifecycle.has_task else []
    return {"name": connector.name, "connector": own, "tasks": tasks, "type": connector.kind}


def task_status(connector: Connector, worker_id: str, version: str) -> dict[str, Any]:
    """Return the state of a connector's task, with the reason where it failed."""
    lifecycle = connector.lifecycle
    status = {"id": 0, "state": lifecycle.state, "worker_id": worker_id, "version": version}
    return {**status, "trace": lifecycle.error} if lifecycle.state == "FAILED" else status


def task_configs(connector: Connector) -> list[dict[str, Any]]:
    """Return the connector's tasks with their properties."""
    if not connector.lifecycle.has_task:
        return []
    return [{"id": {"connector": connector.name, "task": 0}, "config": mask_config(connector.config)}]


def offsets_document(offsets: Sequence[ConnectorOffset]) -> dict[str, Any]:
    """Return offsets as Connect writes them."""
    return {"offsets": [{"partition": dict(one.partition), "offset": one.offset} for one in offsets]}
