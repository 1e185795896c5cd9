r"""Key columns -> `_id`: deterministic, and never the same for two keys. Runs on executors, a column at a time.

The values' texts with `-` between them ("us-electronics"). So that no two keys meet, a `\` in a
value is written `\\`, and a `-` in one of several values `\-`; an empty id is `\e`. An id of more than 512 bytes, which
OpenSearch refuses, is `\#` and the SHA-256 of the whole one: no plain id has a single `\` there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.errors import FatalError
from connector.opensearch.documents.json_values import to_plain_texts
from serde.arrays import unify_floats

MAX_ID_BYTES = 512
"""OpenSearch's limit of an id."""

_EMPTY_ID = "\\e"


def build_document_ids(keys: Sequence[pa.Array]) -> pa.StringArray:
    """Return the id of each row; the columns are the key's, in order, and of types without parts.

    Raises:
        FatalError: a key has a null; such rows are refused before, where their table and column are known.
    """
    if any(key.null_count for key in keys):
        raise FatalError("a document's key has a null, and its id would too; nothing of this batch is acknowledged")
    texts = [pc.replace_substring(to_plain_texts(unify_floats(key)), "\\", "\\\\") for key in keys]
    if len(texts) == 1:
        ids = pc.if_else(pc.equal(texts[0], ""), _EMPTY_ID, texts[0])
    else:
        ids = pc.binary_join_element_wise(*(pc.replace_substring(text, "-", "\\-") for text in texts), "-")
    return _hash_long_ids(ids)


def build_record_ids(topic: str, partition: int, offsets: pa.Array) -> pa.StringArray:
    """Return ids of records that are told apart by where they stand (`key.ignore`; the names' form is Aiven's)."""
    return pc.binary_join_element_wise(f"{topic}+{partition}+", offsets.cast(pa.string()), "")


def _hash_long_ids(ids: pa.StringArray) -> pa.StringArray:
    long = pc.greater(pc.binary_length(ids), MAX_ID_BYTES)
    if not pc.any(long).as_py():
        return ids
    rows = np.flatnonzero(long)
    digests = ["\\#" + hashlib.sha256(text.encode()).hexdigest() for text in ids.take(pa.array(rows)).to_pylist()]
    return pc.replace_with_mask(ids, long, pa.array(digests, pa.string()))
