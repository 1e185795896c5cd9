"""The error of an answer, or of an item of one -> whether it is a block of the cluster, which ends by itself (pure).

OpenSearch sets blocks when its disks fill, and lifts them when there is room again: new indexes are blocked while all
nodes are above the high watermark (`index_create_block_exception`, status 403), documents of indexes on a node above
the flood stage (`cluster_block_exception`, status 429; 403 in earlier versions). Operators set others, for a while.
"""

from __future__ import annotations

NO_INDEX = "index_not_found_exception"
"""There is no such index; or the cluster has just started, and has not read its state."""

_BLOCK_ERRORS = frozenset({"cluster_block_exception", "index_create_block_exception"})
_BLOCK_STATUSES = frozenset({403, 429})
"""Of another status is what passes with the node that leads (503)."""

BLOCK_REMEDY = (
    "free disk space: above cluster.routing.allocation.disk.watermark.high OpenSearch takes no new indexes, above "
    "watermark.flood_stage no documents; a block that was set by hand (index.blocks, cluster.blocks) is lifted there"
)


def is_cluster_block(status: object, kind: object) -> bool:
    """Tell whether an answer of this status, and type of error, comes from a block, and not from missing rights."""
    return status in _BLOCK_STATUSES and kind in _BLOCK_ERRORS
