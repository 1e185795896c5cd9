"""Bulk requests to a server of the test's own, over real connections: answers that no node can be made to give."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow as pa
import pytest

from connector.errors import FatalError, GapError, RetriableError
from connector.opensearch.bulk.actions import WriteOptions, index_documents
from connector.opensearch.bulk.bulk_processor import BulkActions, BulkProcessor, DocumentCounts
from connector.opensearch.documents.document_lookup import fetch_documents
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from connector.sink.destinations.opensearch.write.document_requests import DocumentRequests
from tests.harness.http_server import serve_http
from tests.unit.sink_plans import plan

QUICK = BulkSettings(retries=2, backoff_ms=1)
LINE_BYTES = 4_096
"""What a node takes as the first line of a request (`http.max_initial_line_length`)."""
Answer = tuple[int, object]


@contextmanager
def _server(answer: Callable[[list[str]], Answer]) -> Iterator[ConnectionSettings]:
    """A server that answers each request's lines; the connection's user is wrong."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            lines = self.rfile.read(int(self.headers["Content-Length"])).decode().splitlines()
            long = len(self.raw_requestline) > LINE_BYTES
            status, told = (400, {"error": {"type": "too_long_http_line_exception"}}) if long else answer(lines)
            body = json.dumps(_leave_out_fields(told, self.path)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serve_http(Handler) as url:
        yield ConnectionSettings((url,), username="wrong", password="s3cret")


def _leave_out_fields(told: object, path: str) -> object:
    """Documents without the fields that a request's line does not name, if it names any."""
    named = parse_qs(urlsplit(path).query).get("_source_includes")
    if named and isinstance(told, dict):
        for document in told.get("docs", ()):
            own = document.get("_source", {})
            document["_source"] = {name: own[name] for name in own if name in named[0].split(",")}
    return told


def _actions(*texts: str, create: bool = False) -> BulkActions:
    ids = pa.array([f"k{place}" for place in range(len(texts))])
    versions = None if create else np.arange(len(texts))
    return index_documents(
        WriteOptions("i", create=create), ["v"], [pa.array(texts)], ids, versions, np.arange(len(texts))
    )


def _sent(connection: ConnectionSettings, actions: BulkActions) -> tuple[DocumentCounts, dict[int, str]]:
    dead: dict[int, str] = {}
    bulk = BulkProcessor(connection, QUICK, dead.__setitem__)
    bulk.send(actions)
    return bulk.finish(), dead


@pytest.mark.parametrize("status", [401, 403])
def test_wrong_credentials_stop_at_once(status: int) -> None:
    """Who is not let in asks once, is told what to check, and no word of the password."""
    asked = []
    with _server(lambda lines: (asked.append(lines), (status, {"error": "no"}))[1]) as connection:
        with pytest.raises(FatalError, match=r"check connection\.username") as stopped:
            _sent(connection, _actions("1"))
        assert len(asked) == 1 and "s3cret" not in str(stopped.value)


def test_a_missing_pipeline_stops() -> None:
    """What an index refuses of any document, as it lacks its pipeline, makes none a dead letter."""
    wrong = {"type": "illegal_argument_exception", "reason": "pipeline with id [tidy] does not exist"}
    items = [{"index": {"_id": "k0", "status": 400, "error": wrong}}]
    answer = (200, {"errors": True, "items": items})
    with _server(lambda _: answer) as connection, pytest.raises(FatalError, match=r"pipeline with id \[tidy\]"):
        _sent(connection, _actions("1"))


def test_a_document_that_is_too_large_is_the_only_one_refused() -> None:
    """A request that the server finds too large is cut in two until the document at fault stands alone."""

    def answer(lines: list[str]) -> Answer:
        small = sum(map(len, lines)) < 500
        return (
            (200, {"errors": False, "items": [{"index": {"status": 201}}] * (len(lines) // 2)}) if small else (413, {})
        )

    with _server(answer) as connection:
        counts, dead = _sent(connection, _actions("1", "2", f'"{"x" * 1000}"', "4"))
    assert (counts.indexed, counts.malformed, list(dead)) == (3, 1, [2])


def test_a_full_disk_is_waited_for() -> None:
    """Items that are refused for want of room are sent again, and only those."""
    rounds: list[int] = []
    block = {"status": 429, "error": {"type": "cluster_block_exception", "reason": "disk usage exceeded"}}

    def answer(lines: list[str]) -> Answer:
        rounds.append(len(lines) // 2)
        full = len(rounds) < 3
        items = [{"index": block if full and not place else {"status": 201}} for place in range(len(lines) // 2)]
        return 200, {"errors": full, "items": items}

    with _server(answer) as connection:
        counts, dead = _sent(connection, _actions("1", "2"))
    assert (counts.indexed, rounds, dead) == (2, [2, 1, 1], {})


@pytest.mark.parametrize("status", [403, 429])
@pytest.mark.parametrize("kind", ["cluster_block_exception", "index_create_block_exception"])
def test_a_disk_that_stays_full_is_no_success(status: int, kind: str) -> None:
    """After the last try the batch is not acknowledged: it comes again as a whole; the way out is said."""
    wrong = {"type": kind, "reason": "disk usage exceeded"}
    item = {"index": {"status": status, "error": wrong}}
    told: list[Answer] = [(200, {"errors": True, "items": [item]}), (status, {"error": wrong, "status": status})]
    for answer in told:
        asked: list[list[str]] = []
        with (
            _server(lambda lines, a=asked, t=answer: (a.append(lines), t)[1]) as connection,  # type: ignore[misc]
            pytest.raises(RetriableError, match=r"disk usage exceeded.*free disk space"),
        ):
            _sent(connection, _actions("1"))
        assert len(asked) == 1 + QUICK.retries


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("no_shard_available_action_exception", RetriableError),
        ("cluster_block_exception", RetriableError),
        ("security_exception", FatalError),
    ],
)
def test_a_document_that_cannot_be_looked_up_is_not_missing(kind: str, wanted: type[Exception]) -> None:
    """A shard that is away answers for each of its documents: values that it holds would be lost."""
    docs = [{"_id": "a", "found": False}, {"_id": "b", "error": {"type": kind, "reason": "no"}}]
    with _server(lambda _: (200, {"docs": docs})) as connection, pytest.raises(wanted, match="looking documents of i"):
        list(fetch_documents(connection, "i", ["a", "b"], ["v"]))


def test_an_index_that_is_gone_holds_no_document() -> None:
    """Its documents are missing; that it is gone is noticed by what is sent there."""
    docs = [{"_id": "a", "error": {"type": "index_not_found_exception", "reason": "no such index"}}]
    with _server(lambda _: (200, {"docs": docs})) as connection:
        assert list(fetch_documents(connection, "i", ["a"], ["v"])) == [None]


@pytest.mark.parametrize("names", [[f"a_column_with_some_name_{n}" for n in range(200)], ["street, number"]])
def test_documents_of_any_columns_are_looked_up(names: list[str]) -> None:
    """A wide table's names have no room in a request's line, and commas part them there: values would be lost."""
    own = dict.fromkeys(names, 1)
    document = {"_id": "a", "found": True, "_version": 3, "_source": own}
    with _server(lambda _: (200, {"docs": [document]})) as connection:
        (found,) = fetch_documents(connection, "i", ["a"], names)
    assert found is not None and (found.version, found.fields) == (3, own)


def test_missing_rights_stop_at_once() -> None:
    """The security plugin's 403, for a request or an item of one, is no block."""
    wrong = {"type": "security_exception", "reason": "no permissions for [indices:data/write/bulk]"}
    item = {"index": {"status": 403, "error": wrong}}
    for answer in ((200, {"errors": True, "items": [item]}), (403, {"error": wrong, "status": 403})):
        asked: list[list[str]] = []
        with (
            _server(lambda lines, a=asked, t=answer: (a.append(lines), t)[1]) as connection,  # type: ignore[misc]
            pytest.raises(FatalError),
        ):
            _sent(connection, _actions("1"))
        assert len(asked) == 1


def test_what_was_created_before_is_done() -> None:
    """A create that meets its own document came again: that is success, and no conflict."""
    there = {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "document already exists"}}
    with _server(lambda _: (200, {"errors": True, "items": [{"create": there}]})) as connection:
        counts, _ = _sent(connection, _actions("1", create=True))
    assert (counts.indexed, counts.stale) == (1, 0)


def test_an_update_that_meets_another_one_is_sent_again() -> None:
    """Partial updates have no versions: a conflict is another request at the same document, and nothing newer."""
    rounds: list[list[str]] = []
    busy = {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "[k]: required seqNo [2]"}}

    def answer(lines: list[str]) -> Answer:
        rounds.append(lines)
        meets = len(rounds) == 1
        return 200, {"errors": meets, "items": [{"update": busy if meets else {"status": 200}}]}

    ids, texts = pa.array(["k"]), [pa.array(["1"])]
    update = index_documents(WriteOptions("i", partial=True), ["v"], texts, ids, None, np.arange(1))
    with _server(answer) as connection:
        counts, _ = _sent(connection, update)
    assert (counts.indexed, counts.stale, len(rounds)) == (1, 0, 2)
    with (
        _server(lambda _: (200, {"errors": True, "items": [{"update": busy}]})) as connection,
        pytest.raises(RetriableError, match=r"status 409, version_conflict_engine_exception\)"),
    ):
        _sent(connection, update)


def test_a_create_without_an_answer_is_not_sent_blindly_again() -> None:
    """Whether it was done is not known, and a rollover may be between: the batch looks it up first."""
    asked = []
    with _server(lambda lines: (asked.append(lines), (503, {}))[1]) as connection:
        with pytest.raises(RetriableError):
            _sent(connection, _actions("1", create=True))
        assert len(asked) == 1
        with pytest.raises(RetriableError):
            _sent(connection, _actions("1"))
        assert len(asked) == 1 + 1 + QUICK.retries


def test_answers_that_are_fewer_than_the_actions_stop() -> None:
    """A request one of whose actions has no answer is no success, with errors in it or without: nobody knows which."""
    done, bad = {"index": {"status": 201}}, {"index": {"status": 400, "error": {"type": "mapper_parsing_exception"}}}
    for told in ({"errors": False, "items": [done]}, {"errors": True, "items": [bad]}, {"errors": False}):
        with (
            _server(lambda _, told=told: (200, told)) as connection,  # type: ignore[misc]
            pytest.raises(FatalError, match=r"answers [01] actions of a bulk request of 2"),
        ):
            _sent(connection, _actions("1", "2"))


def test_an_answer_for_another_document_blames_none() -> None:
    """An item that refuses a document is about the id of its place, or the batch stops."""
    items = [{"index": {"_id": f"k{n}", "status": 201}} for n in (1, 0)]
    items[1]["index"] |= {"status": 400, "error": {"type": "mapper_parsing_exception"}}
    with (
        _server(lambda _: (200, {"errors": True, "items": items})) as connection,
        pytest.raises(FatalError, match="another document than the one at place 1"),
    ):
        _sent(connection, _actions("1", "2"))
    with _server(lambda _: (200, {"errors": True, "items": items[::-1]})) as connection:
        counts, dead = _sent(connection, _actions("1", "2"))
    assert (counts.indexed, list(dead)) == (1, [0])


def test_a_missing_line_is_never_sent() -> None:
    """A null among the lines would shift all answers behind it: nothing is sent."""
    asked: list[object] = []
    holed = BulkActions(pa.array(['{"delete":{"_index":"i","_id":"a"}}\n', None]), np.arange(2), 2)
    with (
        _server(lambda lines: (asked.append(lines), (200, {}))[1]) as connection,
        pytest.raises(FatalError, match="no text"),
    ):
        _sent(connection, holed)
    assert asked == []


def test_a_record_that_two_indexes_refuse_is_one_dead_letter() -> None:
    """A record that routes send to two indexes counts once: as many letters as records, or the limit is overrun."""
    requests = DocumentRequests(ConnectionSettings(("http://localhost:1",)), QUICK, {}, plan())
    for reason in ("one index", "another"):
        requests.refuse(7, reason)
    (letter,) = requests.build_letters()
    assert (requests.refused, letter.offset, letter.reason) == (1, 7, "one index")


def test_an_index_that_is_gone_is_said_so() -> None:
    """Where OpenSearch makes no index by itself, its answer is that documents are gone, and what to do."""
    wrong = {"type": "index_not_found_exception", "reason": "no such index [i]"}
    item = {"index": {"_id": "k0", "status": 404, "error": wrong}}
    with (
        _server(lambda _: (200, {"errors": True, "items": [item]})) as connection,
        pytest.raises(GapError, match=r"no such index \[i\].*icebridge offsets"),
    ):
        _sent(connection, _actions("1"))
