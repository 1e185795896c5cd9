"""Documents behind one name with several indexes, without a node: indexes of the test's own that keep OpenSearch's
rules for external versions. The real ones are met in tests/kafka/test_search_series.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pytest

from connector.opensearch.bulk import document_sender
from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.bulk.bulk_processor import BulkActions, DocumentCounts, OnStale
from connector.opensearch.bulk.document_sender import DocumentSender
from connector.opensearch.documents.document_lookup import StoredDocument
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from tests.harness.tiers import tiered


@attrs.define
class Shelf:
    """One index: documents by id with their versions, and the versions of deleted ones."""

    held: dict[str, tuple[int, str]] = attrs.field(factory=dict)
    gone: dict[str, int] = attrs.field(factory=dict)

    def take(self, action: str, told: dict[str, str | int], document: str | None) -> bool:
        """One action; whether it was done."""
        key, version = str(told["_id"]), int(told.get("version", 0))
        if action == "create":
            done = key not in self.held
        else:
            done = version >= max(self.held.get(key, (-1, ""))[0], self.gone.get(key, -1))
        if done and document is None:
            self.held.pop(key, None)
            self.gone[key] = version
        elif done and document is not None:
            self.held[key] = version, document
        return done


@attrs.define
class Alias:
    """Indexes behind an alias, the last of which takes documents; `seen` is what searches see."""

    shelves: list[Shelf] = attrs.field(factory=lambda: [Shelf()])
    seen: list[set[str]] = attrs.field(factory=list)

    @property
    def style(self) -> WriteOptions:
        """How documents are written now."""
        names = tuple(map(str, range(len(self.shelves))))
        return WriteOptions(names[-1], over="all" if len(names) > 1 else None, behind=names if len(names) > 1 else ())

    @property
    def documents(self) -> list[tuple[str, str]]:
        """Every document of any of them."""
        return sorted((key, text) for shelf in self.shelves for key, (_, text) in shelf.held.items())

    def refresh(self) -> None:
        """Let searches see all."""
        self.seen = [set(shelf.held) for shelf in self.shelves]

    def take(self, body: bytes) -> list[bool]:
        """A bulk request."""
        lines = iter(body.decode().splitlines())
        done = []
        for line in lines:
            ((action, told),) = json.loads(line).items()
            document = None if action == "delete" else next(lines)
            done.append(
                self.shelves[int(told["_index"]) if told["_index"] != "all" else -1].take(action, told, document)
            )
        return done


@pytest.fixture
def alias(monkeypatch: pytest.MonkeyPatch) -> Alias:
    """An alias that bulk requests and look-ups go to."""
    made = Alias()

    class Bulk:
        def __init__(self, *told: object) -> None:
            self.counts = DocumentCounts()
            self.stale: OnStale = told[3] if len(told) > 3 else lambda _: None  # type: ignore[assignment]

        def send(self, actions: BulkActions) -> None:
            for tag, done in zip(actions.tags.tolist(), made.take(actions.body), strict=True):
                if not done:
                    self.counts.stale += 1
                    self.stale(tag)

        def settle(self) -> None:
            pass

        def finish(self) -> DocumentCounts:
            return self.counts

    def homes(_: object, __: str, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
        return {one: own for one in ids if (own := tuple(str(i) for i, seen in enumerate(made.seen) if one in seen))}

    def held(
        _: object, index: str | Sequence[str], ids: Sequence[str], fields: Sequence[str]
    ) -> Iterator[StoredDocument | None]:
        for place, one in zip([index] * len(ids) if isinstance(index, str) else index, ids, strict=True):
            found = made.shelves[int(place)].held.get(one)
            yield (
                None
                if found is None
                else StoredDocument(found[0], {name: json.loads(found[1])[name] for name in fields})
            )

    monkeypatch.setattr(document_sender, "BulkProcessor", Bulk)
    monkeypatch.setattr(document_sender, "find_indexes", homes)
    monkeypatch.setattr(document_sender, "fetch_documents", held)
    monkeypatch.setattr(document_sender, "refresh_indexes", lambda *_: made.refresh())
    return made


def _sender(stale: OnStale = lambda _: None) -> DocumentSender:
    return DocumentSender(ConnectionSettings(()), BulkSettings(), lambda *_: None, stale)


Change = tuple[str, int, bool]
"""Key, version, whether it deletes."""


def _send(alias: Alias, changes: Sequence[Change], *, style: WriteOptions | None = None) -> DocumentCounts:
    """One task's changes, one for each key."""
    sender, style = _sender(), style or alias.style
    for deletes in (False, True):
        some = [change for change in changes if change[2] is deletes]
        if not some:
            continue
        ids, versions = pa.array([key for key, _, _ in some]), np.array([version for _, version, _ in some])
        if deletes:
            sender.delete(style, ids, versions, np.arange(len(some)))
        else:
            texts = {"v": pa.array([str(version) for _, version, _ in some])}
            sender.put(style, texts, ids, versions, np.arange(len(some)))
    return sender.finish()


def _batches(rng: random.Random, changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Changes in order, each key once in a batch."""
    at = 0
    while at < len(changes):
        some = list(changes[at : at + rng.randint(1, 6)])
        at += len(some)
        yield list({key: change for change in some for key in (change[0],)}.values())


@pytest.mark.parametrize("seed", tiered(range(60), range(10)))
def test_any_history_with_rollovers_ends_in_the_last_change_of_each_key(alias: Alias, seed: int) -> None:
    """Whatever is rolled over when, and whatever comes again in whatever order: one document for each living key."""
    rng = random.Random(seed)
    keys = [f"k{number}" for number in range(5)]
    history = [(rng.choice(keys), version, rng.random() < 0.4) for version in range(1, 60)]
    last = {key: (version, gone) for key, version, gone in history}
    wanted = sorted((key, json.dumps({"v": v}, separators=(",", ":"))) for key, (v, gone) in last.items() if not gone)
    for batch in _batches(rng, history):
        style = alias.style
        if rng.random() < 0.2:
            alias.shelves.append(Shelf())  # between the plan and its requests
        _send(alias, batch, style=style if rng.random() < 0.5 else None)
        if rng.random() < 0.3:
            _send(alias, batch)
    assert alias.documents == wanted
    again = history[:]
    for _ in range(2):
        rng.shuffle(again)
        alias.shelves.append(Shelf())
        for batch in _batches(rng, again):
            _send(alias, batch)
        assert alias.documents == wanted


def test_what_was_overtaken_is_told(alias: Alias) -> None:
    """A change of a document that was deleted since, before a rollover, is stale, and its sender hears of it."""
    alias.shelves.append(Shelf())
    _send(alias, [("a", 1, False), ("b", 1, False)])
    _send(alias, [("a", 5, True)])
    alias.shelves.append(Shelf())
    told: list[int] = []
    sender = _sender(told.append)
    texts, ids, versions = {"v": pa.array(["3", "3"])}, pa.array(["b", "a"]), np.array([3, 3])
    sender.put(alias.style, texts, ids, versions, np.array([70, 80]))
    assert (sender.finish().stale, told, alias.documents) == (1, [80], [("b", '{"v":3}')])


def test_of_two_documents_of_a_key_the_next_change_leaves_one(alias: Alias) -> None:
    """Two processes with a rollover between them may have made two: an update leaves the one it changes."""
    alias.shelves = [Shelf({"a": (1, '{"v":1}')}), Shelf({"a": (2, '{"v":2}')}), Shelf()]
    _send(alias, [("a", 3, False)])
    assert alias.documents == [("a", '{"v":3}')]


def test_what_is_only_added_is_left_out_where_it_is(alias: Alias) -> None:
    """A data stream has each document once, whichever of its indexes took it."""
    alias.shelves = [Shelf({"a": (0, "{}")}), Shelf()]
    sender = _sender()
    style = WriteOptions("all", create=True, over="all")
    sender.put(style, {"v": pa.array(["1", "2"])}, pa.array(["a", "b"]), None, np.arange(2))
    assert sender.finish().indexed >= 1
    assert alias.documents == [("a", "{}"), ("b", '{"v":2}')]


def test_documents_are_read_from_the_index_that_holds_them(alias: Alias) -> None:
    """Look-ups find documents in older indexes, and those that searches do not see yet in the one that takes them."""
    alias.shelves = [Shelf({"a": (1, '{"v":1}')}), Shelf()]
    sender = _sender()
    assert sender.fetch_stored(alias.style, ["a", "b"], ["v"])[1] is None
    alias.shelves[1].held["b"] = 2, '{"v":2}'
    found = [one and (one.version, one.fields) for one in sender.fetch_stored(alias.style, ["a", "b"], ["v"])]
    assert found == [(1, {"v": 1}), (2, {"v": 2})]
