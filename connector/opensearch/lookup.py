"""Ids -> what an index holds of them, as it is now (`_mget` needs no refresh). On executors, for few ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from connector.opensearch.client import client, mapped
from connector.settings.search import ConnectionSettings

AT_ONCE = 1_000


@attrs.frozen(eq=False)
class Held:
    """A document: its version, and the fields that were asked for."""

    version: int
    fields: dict[str, Any]


def held(
    connection: ConnectionSettings, index: str, ids: Sequence[str], fields: Sequence[str]
) -> Iterator[Held | None]:
    """Give the document of each id, None where there is none.

    Raises:
        RetriableError, FatalError: the cluster is away, or does not let us in.
    """
    shown: dict[str, Any] = {"_source_includes": list(fields)} if fields else {"_source": False}
    for start in range(0, len(ids), AT_ONCE):
        wanted = list(ids[start : start + AT_ONCE])
        with mapped(f"looking documents of {index} up"):
            answer = client(connection).mget(body={"ids": wanted}, index=index, **shown)
        for one in answer["docs"]:
            yield Held(one["_version"], one.get("_source", {})) if one.get("found") else None
