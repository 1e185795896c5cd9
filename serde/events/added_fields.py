"""Terms of add.fields -> paths within an envelope, found as Debezium's ExtractNewRecordState finds them (pure)."""

from __future__ import annotations

_OF_TRANSACTION = frozenset({"id", "total_order", "data_collection_order"})


def find_added_path(term: str) -> str:
    """Return where the field of a term is: of the transaction's own fields a term may leave out whose they are."""
    path = term.partition(":")[0]
    return f"transaction.{path}" if path in _OF_TRANSACTION else path
