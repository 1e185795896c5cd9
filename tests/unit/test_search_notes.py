"""What indexes keep of what they are for, and what becomes of documents that they refuse."""

from __future__ import annotations

import orjson
import pytest

from connector.errors import FatalError
from connector.opensearch.bulk.item_results import apply_policy
from connector.opensearch.indexes.index_meta import IndexMetadata

pytestmark = pytest.mark.unit

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


@pytest.mark.parametrize(
    "note",
    [
        IndexMetadata(SCHEMA, "offset", tombstones=True),
        IndexMetadata(SCHEMA, "source"),
        IndexMetadata(SCHEMA, "source", names={1: "number"}, owner="Shop.orders"),
    ],
)
def test_a_note_is_read_as_it_was_written(note: IndexMetadata) -> None:
    """A note comes back from the texts that an index keeps."""
    kept = {key: orjson.loads(orjson.dumps(value)) for key, value in note.document().items()}
    assert IndexMetadata.read(kept) == note


def test_an_index_is_foreign_to_other_names_only() -> None:
    """An index whose name was made of another name is foreign; one that is named as it is belongs to all."""
    made = IndexMetadata(SCHEMA, "source", owner="Shop.orders")
    assert [made.is_foreign(name) for name in ("Shop.orders", "shop.orders", "")] == [False, True, False]
    assert not IndexMetadata(SCHEMA, "source").is_foreign("shop.orders")


def test_documents_that_an_index_refuses_stop_only_where_the_rule_says_so() -> None:
    """Only `fail` stops, and only where there are such documents."""
    for rule in ("ignore", "warn", "report"):
        apply_policy(rule, 3, "refused", "left out")
    apply_policy("fail", 0, "refused", "left out")
    with pytest.raises(FatalError, match="refused"):
        apply_policy("fail", 3, "refused", "left out")
