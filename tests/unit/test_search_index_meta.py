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
        IndexMetadata(SCHEMA, "source", fields={"id": "id_1"}),
    ],
)
def test_a_note_is_read_as_it_was_written(note: IndexMetadata) -> None:
    """A note comes back from the texts that an index keeps."""
    kept = {key: orjson.loads(orjson.dumps(value)) for key, value in note.document().items()}
    assert IndexMetadata.read(kept) == note


def test_fields_by_the_names_of_columns() -> None:
    """Fields of columns are what the note says, by name or by id, else what the rule makes of their names."""
    fields = [{"id": n, "name": name, "type": "long"} for n, name in enumerate(["_id", "a.b", "a", "x"], 1)]
    schema = {"type": "struct", "fields": fields}
    made = {"_id": "_id_1", "a.b": "a.b", "a": "a_3", "x": "x"}
    assert IndexMetadata(schema, "source").fields_by_name() == made
    assert IndexMetadata(schema, "source", fields={"a": "first"}).fields_by_name() == {**made, "a": "first"}
    direct = IndexMetadata(schema, "source", names={1: "old", 2: "a.b", 3: "a_3", 9: "x"})
    assert direct.fields_by_name() == {**made, "_id": "old", "x": "x_4"}, "a dropped column keeps its field"


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
