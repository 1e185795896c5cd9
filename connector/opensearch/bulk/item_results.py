"""Items of a bulk response -> what to do with each; documents not indexed -> a stop, a warning or nothing."""

from __future__ import annotations

from typing import Literal

import structlog

from connector.errors import FatalError
from connector.opensearch.cluster_blocks import NO_INDEX, is_cluster_block

ItemResult = Literal["done", "stale", "again", "malformed", "gone", "stop"]

_MALFORMED_ERRORS = frozenset(
    {
        "mapper_parsing_exception",
        "document_parsing_exception",
        "illegal_argument_exception",
        "strict_dynamic_mapping_exception",
        "parsing_exception",
        "x_content_parse_exception",
        "json_parse_exception",
        "parse_exception",
        "invalid_index_template_exception",
        "max_bytes_length_exceeded_exception",
        "script_exception",
    }
)
"""The document is at fault, or the field that it would add, or a script of a pipeline fails with its values."""

_INDEX_REASONS = ("pipeline with id [", "Number of documents in shard [")
"""How reasons begin that are of the same types, but true of any document: a pipeline is missing, a shard full."""

_TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})
_CONFLICT_RESULTS: dict[str, ItemResult] = {"create": "done", "update": "again"}
"""Only these actions have no versions of ours: one finds its own document, one meets another request."""
_FIRST_FAILURE, _NOT_FOUND, _CONFLICT, _BAD_REQUEST = 300, 404, 409, 400


def classify_item(status: int, kind: str | None, reason: str = "", *, action: str = "index") -> ItemResult:
    """Judge one item by its status, type and reason of its error, if it has one, and the action that it is of.

    done       it is as it should be: indexed, deleted, nothing there to delete, or created by an earlier delivery
    stale      the index holds a newer version: this change was overtaken, which is all right
    again      the node is busy or blocked, as its disk is full, or another request changes the document that an update
               has read: the same may succeed later
    malformed  this document can never be indexed
    gone       there is no such index, where OpenSearch does not make one by itself
    stop       a person has to look (index closed or full, no rights, no such pipeline)
    """
    if status < _FIRST_FAILURE or (status == _NOT_FOUND and kind is None):
        return "done"
    if status == _CONFLICT and kind == "version_conflict_engine_exception":
        return _CONFLICT_RESULTS.get(action, "stale")
    if status in _TRANSIENT_STATUSES or is_cluster_block(status, kind):
        return "again"
    if kind == NO_INDEX:
        return "gone"
    if status == _BAD_REQUEST and kind in _MALFORMED_ERRORS and not reason.startswith(_INDEX_REASONS):
        return "malformed"
    return "stop"


def apply_policy(policy: str, count: int, fault: str, warning: str, **fields: object) -> None:
    """Follow `behavior.on.malformed.documents` or `behavior.on.version.conflict`.

    Args:
        policy: fail, warn, or another word for nothing.
        count: how many documents it is about; none asks for nothing.
        fault: what to stop with.
        warning: what to warn with.
        fields: more to log with it.

    Raises:
        FatalError: there are some, and the policy is fail.
    """
    if count and policy == "fail":
        raise FatalError(fault)
    if count and policy == "warn":
        structlog.get_logger().warning(warning, count=count, **fields)
