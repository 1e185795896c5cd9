"""What indexes keep of what they are for, and what becomes of documents that they refuse."""

from __future__ import annotations

import orjson
import pytest

from connector.errors import FatalError
from connector.opensearch.bulk.item_policies import judge
from connector.opensearch.indexes.index_meta import Note

pytestmark = pytest.mark.unit

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


@pytest.mark.parametrize(
    "note",
    [
        Note(SCHEMA, "offset", tombstones=True),
        Note(SCHEMA, "source"),
        Note(SCHEMA, "source", names={1: "number"}, owner="Shop.orders"),
    ],
)
def test_a_note_is_read_as_it_was_written(note: Note) -> None:
    """A note comes back from the texts that an index keeps."""
    kept = {key: orjson.loads(orjson.dumps(value)) for key, value in note.document().items()}
    assert Note.read(kept) == note


def test_an_index_is_foreign_to_other_names_only() -> None:
    """An index whose name was made of another name is foreign; one that is named as it is belongs to all."""
    made = Note(SCHEMA, "source", owner="Shop.orders")
    assert [made.foreign(name) for name in ("Shop.orders", "shop.orders", "")] == [False, True, False]
    assert not Note(SCHEMA, "source").foreign("shop.orders")


def test_documents_that_an_index_refuses_stop_only_where_the_rule_says_so() -> None:
    """Only `fail` stops, and only where there are such documents."""
    for rule in ("ignore", "warn", "report"):
        judge(rule, 3, "refused", "left out")
    judge("fail", 0, "refused", "left out")
    with pytest.raises(FatalError, match="refused"):
        judge("fail", 3, "refused", "left out")
