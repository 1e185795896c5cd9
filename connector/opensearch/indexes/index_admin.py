"""Names and mappings -> indexes of a cluster, looked up, made, or given fields. On the driver; metadata only.

An index remembers in its mapping's `_meta` the columns that it was made for, so that nothing of it is kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import attrs
import orjson
from opensearchpy import OpenSearch
from opensearchpy.exceptions import NotFoundError, RequestError, TransportError

from connector.errors import FatalError, GapError, RetriableError
from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.client import map_opensearch_errors, opensearch_client
from connector.opensearch.indexes.index_identity import LOST_INDEX_REMEDY, IndexIds, explain_loss
from connector.opensearch.indexes.index_settings import find_lost_settings
from connector.opensearch.indexes.mapping import FieldMapping, missing_properties
from connector.settings.opensearch.documents import OpenSearchSettings

META_KEY = "icebridge"

AliasMembers = frozenset[tuple[str, bool]]
"""The indexes behind an alias, and of each whether it is said to take documents."""

_MAX_NAMES_BYTES = 3_000
"""Names of indexes in one request: its line may have 4 KiB (`http.max_initial_line_length`)."""

_UUIDS_FILTER = "*.settings.index.uuid"
_IDENTITY_FILTER = "*.aliases,*.settings.index.uuid,*.data_stream"
_REFUSALS = frozenset({400, 403, 404, 405})
"""Statuses of who does not let documents be looked up: a cluster, or what stands before it."""


@attrs.frozen
class IndexInfo:
    """What a name stands for: an index, an alias of one or several, or a data stream.

    `writes` is the index that takes new documents, `behind` all of them, oldest first, where the name is not an index
    itself; `members` has them as the cluster tells them. Fields are those of the index that takes documents; `noted`
    is what we noted last (empty for a foreign one), `rolled` the fields beside that note, where a rollover has made an
    index that lacks them. `ids` tell the indexes from others of their names; empty where names come with time. `meta`
    is what others noted: whoever changes a note writes all of it.
    """

    name: str
    properties: Mapping[str, Any]
    noted: Mapping[str, Any]
    writes: str = ""
    behind: tuple[str, ...] = ()
    members: AliasMembers = frozenset()
    stream: bool = False
    rolled: Mapping[str, Any] | None = None
    ids: IndexIds = attrs.field(factory=dict)
    meta: Mapping[str, Any] = attrs.field(factory=dict)

    def style(self, *, partial: bool) -> WriteOptions:
        """Return how documents are written there."""
        if self.stream:
            return WriteOptions(self.name, create=True, over=self.name)
        several = len(self.behind) > 1
        return WriteOptions(
            self.writes or self.name,
            partial,
            over=self.name if several else None,
            behind=self.behind if several else (),
        )


class IndexAdmin:
    """The indexes of one cluster."""

    def __init__(self, settings: OpenSearchSettings) -> None:
        """Prepare; nothing is asked yet."""
        self._client: OpenSearch = opensearch_client(settings.connection)
        self._settings = {"index.gc_deletes": settings.gc_deletes}

    def find(self, name: str) -> IndexInfo | None:
        """Look an index, alias or data stream up; after a rollover the new index is given what ours must have.

        Raises:
            RetriableError: the cluster is away.
            FatalError: it does not let us in, or nobody knows which index behind an alias takes documents.
        """
        with map_opensearch_errors(f"looking {name} up"):
            answer = self._fetch(name)
        index = parse_index(name, answer) if answer else None
        if index is not None and index.rolled is not None:
            self.grow(index, index.rolled, index.noted)
        return index

    def current(self, index: IndexInfo) -> IndexInfo:
        """Return what a name stands for now: aliases may have been rolled over. Cost: a small request.

        Raises:
            GapError: the name is gone, or an index has taken its place, and the documents are gone.
            RetriableError, FatalError: as `find`.
        """
        with map_opensearch_errors(f"looking {index.name} up"):
            answer = self._fetch(index.name, {"filter_path": _IDENTITY_FILTER})
        now = _parse_ids(answer)
        reason = explain_loss(index.name, index.ids, now)
        if reason is not None:
            raise GapError(reason)
        if now == index.ids and (
            index.stream or not index.behind or _parse_members(index.name, answer) == index.members
        ):
            return index
        fresh = self.find(index.name)
        if fresh is None:
            raise GapError(f"index {index.name} is gone, and the documents that it had; {LOST_INDEX_REMEDY}")
        return fresh

    def find_unchanged(self, indexes: Iterable[IndexInfo]) -> frozenset[str]:
        """Return the names of those that are indexes themselves and still the same: a request for many of them.

        Raises:
            RetriableError, FatalError: as `find`.
        """
        plain = {index.name: index.ids for index in indexes if index.ids.keys() == {index.name}}
        now: dict[str, str] = {}
        with map_opensearch_errors("looking indexes up"):
            for some in join_names(plain):
                # Those that are gone are left out of the answer, those that became aliases come by other names.
                params = {"ignore_unavailable": "true", "filter_path": _UUIDS_FILTER}
                now |= _parse_ids(self._client.indices.get_settings(index=some, name="index.uuid", params=params))
        return frozenset(name for name, ids in plain.items() if ids == {name: now.get(name)})

    def confirm_indexes(self, index: IndexInfo) -> IndexInfo:
        """Check that all indexes that documents were sent to are still there, and behind their alias; give what is now.

        One that was dropped meanwhile OpenSearch makes again, behind no alias, for the very documents sent to it.

        Raises:
            RetriableError: one is not; sent once more, the documents go where they belong.
            GapError, FatalError: as `current`.
        """
        now = self.current(index)
        gone = sorted(set(index.behind) - set(now.behind))
        if gone and not index.stream:
            raise RetriableError(
                f"{', '.join(gone)} left alias {index.name} while documents were sent there; the batch is sent again "
                "(an index of that name without alias can be deleted)"
            )
        return now

    def create(self, name: str, properties: Mapping[str, FieldMapping], noted: Mapping[str, Any]) -> IndexInfo:
        """Make an index, and give it; one that another process made meanwhile is all right.

        Raises:
            RetriableError, FatalError: the cluster is away, or refuses it.
        """
        body = {"settings": self._settings, "mappings": {"_meta": encode_meta(noted), "properties": dict(properties)}}
        with map_opensearch_errors(f"creating index {name}"):
            try:
                self._client.indices.create(index=name, body=body)
            except RequestError as error:
                if error.error != "resource_already_exists_exception":
                    raise
        index = self.find(name)
        if index is None:
            raise RetriableError(f"index {name} was created and is missing again")
        return index

    def grow(self, index: IndexInfo, properties: Mapping[str, FieldMapping], noted: Mapping[str, Any]) -> None:
        """Add the fields that an index lacks, and note its columns; all indexes behind an alias get them.

        Raises:
            FatalError: it has too many fields, or refuses them for another reason.
        """
        meta = {**index.meta, **encode_meta(noted)}
        body = {"_meta": meta, "properties": missing_properties(index.properties, properties)}
        with map_opensearch_errors(f"adding fields to index {index.name}"):
            self._client.indices.put_mapping(index=index.name, body=body)
            if index.behind and not index.stream:
                # Indexes that a rollover makes have the settings of templates, and none of ours.
                kept = {"preserve_existing": "true"}
                self._client.indices.put_settings(index=index.name, body=self._settings, params=kept)

    def swap_alias(self, alias: str, fresh: str) -> list[str]:
        """Let a name stand for a fresh index, in one step that no search falls into; give the indexes it stood for.

        What had the name before is deleted, whether it was an index itself or stood behind the alias. Its other aliases
        go over to the fresh index: searches have some of their own. Its settings do not: a template may have others.

        Raises:
            RetriableError, FatalError: the cluster is away, or refuses it; the name is as it was.
        """
        with map_opensearch_errors(f"swapping {alias} for {fresh}"):
            self._client.indices.refresh(index=fresh)
            before = {name: entry for name, entry in self._fetch(alias).items() if name != fresh}
            gone = [{"remove_index": {"index": name}} for name in before]
            names = dict[str, Mapping[str, Any]]()
            for _, entry in sorted(before.items()):
                names |= entry["aliases"]
            names[alias] = {"is_write_index": True}
            added = [{"add": {"index": fresh, "alias": name, **how}} for name, how in names.items()]
            self._client.indices.update_aliases(body={"actions": [*gone, *added]})
        return list(before)

    def find_lost_settings(self, alias: str, fresh: str) -> list[str]:
        """Return the names of settings of the indexes that a name stands for, and that a fresh index has not.

        Raises:
            RetriableError, FatalError: as `find`.
        """
        with map_opensearch_errors(f"comparing {alias} with {fresh}"):
            made = self._client.indices.get(index=fresh)[fresh]["settings"]
            answer = self._fetch(alias)
        lost = (find_lost_settings(entry["settings"], made) for name, entry in answer.items() if name != fresh)
        return sorted({setting for some in lost for setting in some})

    def delete(self, name: str) -> None:
        """Delete an index, if it is there.

        Raises:
            RetriableError, FatalError: the cluster is away, or refuses it.
        """
        with map_opensearch_errors(f"deleting {name}"):
            self._client.indices.delete(index=name, ignore_unavailable=True)

    def _fetch(self, name: str, params: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """Return what a name stands for; empty where the cluster has nothing of that name."""
        found: Mapping[str, Any] = {}
        try:
            found = self._client.indices.get(index=name, params=params)
        except NotFoundError:
            self._check_recovered(name)
            with suppress(NotFoundError):
                found = self._client.indices.get(index=name, params=params)
        return found

    def _check_recovered(self, name: str) -> None:
        """Let a cluster that has just started say so: until it has read its state, it knows no index of any name.

        It sets a block for so long, which look-ups of indexes pass over, and look-ups of documents meet (status 503).
        """
        try:
            self._client.mget(body={"ids": ["1"]}, index=name, params={"_source": "false"})
        except TransportError as error:
            # Who may not look documents up meets a login that is not ready as long as the cluster starts (503, too).
            if error.status_code not in _REFUSALS:
                raise


def parse_index(name: str, answer: Mapping[str, Any]) -> IndexInfo:
    """Read what a name stands for (pure).

    Raises:
        FatalError: an alias that documents cannot be found or written through.
    """
    order = sorted(answer, key=lambda each: (int(answer[each]["settings"]["index"]["creation_date"]), each))
    mappings = {each: answer[each]["mappings"] for each in order}
    ours = [each for each in order if META_KEY in mappings[each].get("_meta", {})]
    noted = {key: orjson.loads(text) for key, text in mappings[ours[-1]]["_meta"][META_KEY].items()} if ours else {}
    if order == [name]:
        meta = _parse_foreign_meta(mappings[name])
        return IndexInfo(name, mappings[name].get("properties", {}), noted, ids=_parse_ids(answer), meta=meta)
    stream = any(entry.get("data_stream") == name for entry in answer.values())
    writes = order[-1] if stream else _find_write_index(name, {each: answer[each]["aliases"][name] for each in order})
    return IndexInfo(
        name,
        mappings[writes].get("properties", {}),
        noted,
        writes=writes,
        behind=tuple(order),
        members=frozenset() if stream else _parse_members(name, answer),
        stream=stream,
        rolled=mappings[ours[-1]].get("properties", {}) if ours and writes not in ours else None,
        ids=_parse_ids(answer),
        meta=_parse_foreign_meta(mappings[writes]),
    )


def join_names(names: Iterable[str]) -> Iterator[str]:
    """Return names, with commas between, in as few request lines as OpenSearch takes."""
    waiting, size_bytes = list[str](), 0
    for name in names:
        own = len(quote(name)) + 3
        if waiting and size_bytes + own > _MAX_NAMES_BYTES:
            yield ",".join(waiting)
            waiting, size_bytes = [], 0
        waiting.append(name)
        size_bytes += own
    if waiting:
        yield ",".join(waiting)


def _parse_ids(answer: Mapping[str, Any]) -> dict[str, str]:
    return {index: entry["settings"]["index"]["uuid"] for index, entry in answer.items()}


def _parse_foreign_meta(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.get("_meta", {}).items() if key != META_KEY}


def _parse_members(name: str, answer: Mapping[str, Any]) -> AliasMembers:
    return frozenset((index, bool(entry["aliases"][name].get("is_write_index"))) for index, entry in answer.items())


def _find_write_index(name: str, aliases: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the index behind an alias that takes documents."""
    for index, entry in aliases.items():
        if {"filter", "index_routing", "search_routing"} & entry.keys():
            raise FatalError(
                f"alias {name} has a filter or a routing on index {index}: documents behind it cannot be kept; "
                "give the sink an alias without, and searches one of their own"
            )
    chosen = [index for index, entry in aliases.items() if entry.get("is_write_index")]
    if len(aliases) == 1 and next(iter(aliases.values())).get("is_write_index") is not False:
        chosen = list(aliases)
    if not chosen:
        raise FatalError(
            f"alias {name} stands for {', '.join(aliases)}, and none of them takes documents; set is_write_index on one"
        )
    return chosen[0]


def encode_meta(noted: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return our notes as a mapping keeps them."""
    # As text: `_meta` is an object whose parts OpenSearch would otherwise merge and reorder as it likes.
    return {META_KEY: {key: orjson.dumps(value).decode() for key, value in noted.items()}}
