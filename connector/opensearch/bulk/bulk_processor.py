"""Documents -> bulk requests -> a verdict on every item. Runs on executors.

Bodies are cut out of Arrow's own buffers. A few requests are under way at once; what a busy node refuses is sent again
after a while, and only that. Whatever order requests arrive in, versions decide what an index ends with.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from opensearchpy import OpenSearch
from opensearchpy.exceptions import TransportError

from connector.errors import FatalError, GapError, RetriableError
from connector.opensearch.bulk.item_results import classify_item
from connector.opensearch.client import map_opensearch_errors, opensearch_client
from connector.opensearch.cluster_blocks import BLOCK_REMEDY, is_cluster_block
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from serde.arrays import Ints

_CONFLICT, _PAYLOAD_TOO_LARGE = 409, 413
_RESPONSE_FILTER = (
    "errors,items.*._id,items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"
)
_MAX_ACTION_LINE_BYTES = 8_192
"""More than an action's own line takes: an id is at most 512 bytes, six times that when all of it is escaped."""
_MAX_BACKOFF_S = 30.0
_MAX_REASON_CHARS = 300


@attrs.frozen(eq=False)
class BulkActions:
    """Lines of bulk requests: one action with its document, newlines included, per entry.

    `tags` says of each what the sender knows it by; `deletes` how many of them, from the end, are deletes. With `once`
    a request without an answer is not sent again: what it did would have to be looked up first.
    """

    lines: pa.StringArray
    tags: Ints
    deletes: int = 0
    once: bool = False

    def __len__(self) -> int:
        return len(self.tags)

    def take(self, rows: Ints) -> BulkActions:
        """Return the entries at `rows`, ascending."""
        kept = int((rows >= len(self) - self.deletes).sum())
        return BulkActions(self.lines.take(pa.array(rows)), self.tags[rows], kept, self.once)

    def cut(self, start: int, stop: int) -> BulkActions:
        """Return the entries from `start` up to, not including, `stop`; nothing is copied."""
        deletes = max(0, stop - max(start, len(self) - self.deletes))
        return BulkActions(self.lines[start:stop], self.tags[start:stop], deletes, self.once)

    def id(self, row: int) -> str | None:
        """Return the id that an entry names; None where OpenSearch is to make one up."""
        head = self.lines[row].as_buffer().to_pybytes()[:_MAX_ACTION_LINE_BYTES].partition(b"\n")[0]
        (action,) = orjson.loads(head).values()
        own_id: str | None = action.get("_id")
        return own_id

    @property
    def body(self) -> bytes:
        """The request's body."""
        bounds = np.frombuffer(self.lines.buffers()[1], np.int32)[self.lines.offset :]
        return self.lines.buffers()[2][int(bounds[0]) : int(bounds[len(self)])].to_pybytes()


@attrs.define
class DocumentCounts:
    """What became of documents."""

    indexed: int = 0
    deleted: int = 0
    stale: int = 0
    malformed: int = 0


OnRejected = Callable[[int, str], None]
"""Told of each document that can never be indexed: its tag, and the reason."""

OnStale = Callable[[int], None]
"""Told the tag of each change that the index holds a newer version of."""


class BulkProcessor:
    """Sends the actions of one task; `finish` waits for all of them."""

    def __init__(
        self,
        connection: ConnectionSettings,
        settings: BulkSettings,
        refuse: OnRejected,
        stale: OnStale = lambda _: None,
    ) -> None:
        """Prepare; nothing is sent yet."""
        self._client: OpenSearch = opensearch_client(connection)
        self._settings, self._refuse, self._stale = settings, refuse, stale
        self._pool = ThreadPoolExecutor(settings.in_flight, "bulk")
        self._flying: list[Future[DocumentCounts]] = []
        self.counts = DocumentCounts()

    def send(self, actions: BulkActions) -> None:
        """Send actions in requests within the limits; waits while enough are under way.

        Raises:
            RetriableError: the cluster is away or stayed busy.
            GapError: an index is gone.
            FatalError: it refuses what no later try would change, or answers something else than was asked.
        """
        if actions.lines.null_count:
            raise FatalError(
                "a line of a bulk request has no text, so that answers would be taken for others'; report it with "
                "the log"
            )
        for piece in split_actions(actions, self._settings.max_documents, self._settings.max_bytes):
            while len(self._flying) >= self._settings.in_flight:
                self._settle_request(self._flying.pop(0))
            self._flying.append(self._pool.submit(self._send, piece))

    def settle(self) -> None:
        """Wait until every action that was sent is settled. Raises as `send`."""
        while self._flying:
            self._settle_request(self._flying.pop(0))

    def finish(self) -> DocumentCounts:
        """Settle, and let go of the threads; give the counts of all. Raises as `send`."""
        try:
            self.settle()
        finally:
            self._pool.shutdown(cancel_futures=True)
        return self.counts

    def _settle_request(self, future: Future[DocumentCounts]) -> None:
        answer = future.result()
        for field in attrs.fields(DocumentCounts):
            setattr(self.counts, field.name, getattr(self.counts, field.name) + getattr(answer, field.name))

    def _send(self, actions: BulkActions) -> DocumentCounts:
        counts, wait_s = DocumentCounts(), self._settings.backoff_ms / 1000
        for left in reversed(range(self._settings.retries + 1)):
            again, problem = self._once(actions, counts)
            if not len(again):
                break
            if not left:
                raise RetriableError(problem)
            time.sleep(random.uniform(wait_s / 2, wait_s))  # noqa: S311 - spreads requests, hides nothing
            actions, wait_s = actions.take(again), min(2 * wait_s, _MAX_BACKOFF_S)
        return counts

    def _once(self, actions: BulkActions, counts: DocumentCounts) -> tuple[Ints, str]:
        """Send once; give which actions have to be sent again, and what is the matter with them."""
        try:
            answer = self._request(actions)
        except RetriableError as error:
            if actions.once:
                raise
            return np.arange(len(actions)), str(error)
        except _PayloadTooLarge:
            return self._split_and_send(actions, counts)
        items = answer.get("items", [])
        if len(items) != len(actions):
            raise FatalError(
                f"OpenSearch answers {len(items)} actions of a bulk request of {len(actions)}; nothing of this batch "
                "is acknowledged: look for a proxy between icebridge and the cluster"
            )
        if not answer.get("errors"):
            counts.deleted += actions.deletes
            counts.indexed += len(actions) - actions.deletes
            return np.zeros(0, np.int64), ""
        return self._judge(actions, items, counts)

    def _judge(self, actions: BulkActions, items: list[dict[str, Any]], counts: DocumentCounts) -> tuple[Ints, str]:
        again: list[int] = []
        problem = ""
        for row, item in enumerate(items):
            ((action, result),) = item.items()
            wrong = result.get("error") or {}
            if wrong:
                _check_item_id(actions, row, result)
            match classify_item(result["status"], wrong.get("type"), wrong.get("reason") or "", action=action):
                case "done" if row < len(actions) - actions.deletes:
                    counts.indexed += 1
                case "done":
                    counts.deleted += 1
                case "stale":
                    counts.stale += 1
                    self._stale(int(actions.tags[row]))
                case "again":
                    again.append(row)
                    remedy = f"; {BLOCK_REMEDY}" if is_cluster_block(result["status"], wrong.get("type")) else ""
                    problem = f"OpenSearch refuses documents for now ({_describe_item_error(result)}){remedy}"
                case "malformed":
                    counts.malformed += 1
                    self._refuse(int(actions.tags[row]), f"the index refuses the document ({wrong.get('type')})")
                case "gone":
                    raise GapError(
                        f"an index is gone, and its documents with it ({_describe_item_error(result)}); "
                        "nothing of this batch is "
                        "acknowledged: build it again, or set the stored position back (`icebridge offsets`)"
                    )
                case "stop":
                    raise FatalError(
                        f"OpenSearch refuses a document ({_describe_item_error(result)}); "
                        "nothing of this batch is acknowledged: put the index right, then start again"
                    )
        return np.array(again, np.int64), problem

    def _split_and_send(self, actions: BulkActions, counts: DocumentCounts) -> tuple[Ints, str]:
        """Send a body that is too large for the node in two; a document that is too large alone is malformed."""
        if len(actions) == 1:
            counts.malformed += 1
            self._refuse(int(actions.tags[0]), "the document is larger than the node takes (http.max_content_length)")
            return np.zeros(0, np.int64), ""
        middle = len(actions) // 2
        first, problem = self._once(actions.cut(0, middle), counts)
        second, other = self._once(actions.cut(middle, len(actions)), counts)
        return np.concatenate([first, second + middle]), problem or other

    def _request(self, actions: BulkActions) -> dict[str, Any]:
        with map_opensearch_errors("a bulk request"):
            try:
                answer: dict[str, Any] = self._client.transport.perform_request(
                    "POST", "/_bulk", params={"filter_path": _RESPONSE_FILTER}, body=actions.body
                )
            except TransportError as error:
                if error.status_code == _PAYLOAD_TOO_LARGE:
                    raise _PayloadTooLarge from error
                raise
            return answer


class _PayloadTooLarge(Exception):
    """The node takes no body of this size."""


def _check_item_id(actions: BulkActions, row: int, item: dict[str, Any]) -> None:
    """Check that an item is about the entry of its place: else another document would be blamed."""
    wanted, given = actions.id(row), item.get("_id")
    if wanted is not None and given is not None and wanted != given:
        raise FatalError(
            f"OpenSearch answers for another document than the one at place {row} of a bulk request; nothing of this "
            "batch is acknowledged: look for a proxy between icebridge and the cluster"
        )


def _describe_item_error(item: dict[str, Any]) -> str:
    """Tell of a refusal: a reason that is about the index names no value of a document; one of a conflict does."""
    wrong = item.get("error") or {}
    reason = "" if item["status"] == _CONFLICT else f": {wrong.get('reason', '')}"
    return f"status {item['status']}, {wrong.get('type')}{reason}"[:_MAX_REASON_CHARS]


def split_actions(actions: BulkActions, most: int, most_bytes: int) -> Iterator[BulkActions]:
    """Cut actions into runs of at most so many and so many bytes; one that is larger goes alone."""
    if not len(actions):
        return
    sizes = np.asarray(pc.binary_length(actions.lines), np.int64)
    ends = np.cumsum(sizes)
    start = 0
    while start < len(actions):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + most_bytes, side="right"))
        stop = max(start + 1, min(stop, start + most, len(actions)))
        yield actions.cut(start, stop)
        start = stop
