"""A real node that has not read its state yet -> no index is taken for lost, none for new."""

from __future__ import annotations

import urllib.error
from pathlib import Path

import pytest

from connector.demo.servers.opensearch_node import OpenSearchNode
from connector.demo.servers.ports import DIRECT
from connector.errors import GapError, RetriableError
from connector.opensearch.indexes.index_admin import IndexAdmin
from tests.harness.search_settings import load_search_settings

pytestmark = [pytest.mark.kafka, pytest.mark.thorough, pytest.mark.timeout(400)]

UNREAD = {"gateway.recover_after_data_nodes": "2"}
"""Until a second node comes, which none does, a node does not read what it holds: a start that does not end."""


class _UnreadNode(OpenSearchNode):
    """It answers; of its health it only says that it is red."""

    def _is_answering(self) -> bool:
        try:
            with DIRECT.open(f"{self.url}/", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False


def test_a_node_that_has_not_read_its_state_has_lost_no_index(tmp_path: Path) -> None:
    """What a starting node says it does not have is looked up again; what it then does not have is gone."""
    with OpenSearchNode(tmp_path, short_lived=True) as node:
        index = IndexAdmin(load_search_settings(tmp_path, node.url)).create("orders", {}, {})
    with _UnreadNode(tmp_path, settings=UNREAD, short_lived=True) as node:
        indexes = IndexAdmin(load_search_settings(tmp_path, node.url, "read.timeout.ms=5000"))
        for look_up in (
            lambda: indexes.current(index),
            lambda: indexes.find("orders"),
            lambda: indexes.find_unchanged([index]),
            lambda: indexes.grow(index, {}, {}),
            lambda: indexes.swap_alias("orders", "orders-1"),
        ):
            with pytest.raises(RetriableError):
                look_up()
    with OpenSearchNode(tmp_path, short_lived=True) as node:
        indexes = IndexAdmin(load_search_settings(tmp_path, node.url, "read.timeout.ms=5000"))
        assert indexes.current(index) == index
        indexes.delete("orders")
        with pytest.raises(GapError, match="index orders is gone"):
            indexes.current(index)
