"""A source table and its connector -> records of a topic, and of each what it truly says and when.

The rows, the clock and the shape of events are those of `tests.model.events`. `Truth.serial` is the order in which the
database did things, which no record tells: what is sent again keeps the serial of its first time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from itertools import count
from random import Random
from typing import Any, Literal

import attrs

from serde.events.images.unavailable_value import PLACEHOLDER
from serde.events.kinds.header_names import NEW_KEY_HEADER, OLD_KEY_HEADER
from tests.model.events import START_NS, Clock, Database, Headers, Row
from tests.model.life import Life
from tests.model.recordings import Record
from tests.simulation.answers import Answers
from tests.simulation.columns import find_columns
from tests.simulation.moves import Moves, change, leave_out

KEYS = 5
_UNREAD = ("version", "sequence", "ts_us", "xmin", "txId", "row", "snapshot")
LIFE = Life(KEYS, updated=0.55, again=0.4, brief=0.1)
Header = tuple[str, bytes]
Says = Literal["change", "read", "truncate", "poison"]


@attrs.frozen
class Truth:
    """What a record says: the row of a key from `serial` on, None where it is gone; `told` has its event's columns."""

    serial: int
    says: Says
    key: int = 0
    row: Row | None = None
    transaction: int = 0
    tombstone: bool = False
    came_from: int | None = None
    went_to: int | None = None
    told: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)


MOVES = Answers()
"""What came of what a source did, by its past: the sources of a script's histories mostly do the same."""
_PASTS = count()


class Source(Database):
    """One table; `truth` is beside `log`. Keys begin at `base`. With `leaves_out` updates may come without a value that
    stays as it was. With `tells_keys` both halves of a change of key tell the other's key, as Debezium's do.
    With `moves` rows live as `tests.simulation.moves` tells; events are `numbered` in their transaction, and tell when
    they were `processed`.
    """

    def __init__(
        self,
        topic: str,
        partitions: int,
        clock: Clock,
        *,
        leaves_out: bool = False,
        tells_keys: bool = False,
        base: int = 0,
        moves: bool = False,
        numbered: bool = True,
        processed: bool = False,
    ) -> None:
        super().__init__(topic, partitions, clock=clock)
        self.leaves_out, self.tells_keys, self.base = leaves_out, tells_keys, base
        self.moves, self.numbered, self.processed = moves, numbered, processed
        self._whole: Row | None = None
        self._header: Header | None = None
        self._came_from: int | None = None
        self._went_to: int | None = None
        self._moved_at: int | None = None
        self.headers: list[Header | None] = []
        self.truth: list[Truth] = []
        self.serial = 0
        self._says = Truth(0, "poison")
        self._past: Hashable = topic, partitions, clock, leaves_out, tells_keys, base, moves, numbered, processed

    def once(self, what: Hashable, act: Callable[[], None]) -> None:
        """Do what is told: only once where sources of the same past do the same. Nothing else may change a source."""

        def work() -> tuple[int, dict[str, Any]]:
            act()
            return next(_PASTS), self._state()

        past, known = MOVES.of((self._past, what), work)
        vars(self).update(_copied(known), _past=past)

    def _state(self) -> dict[str, Any]:
        return _copied({name: value for name, value in vars(self).items() if name != "rng"})

    def live(self, rng: Random, most: int) -> None:
        """Commit one transaction, now and then two side by side."""
        self.rng = rng
        if self.moves:
            self.transaction(*Moves(rng, KEYS, {key - self.base for key in self.rows}).transaction(most))
            return
        if self.clock == "postgres" and rng.random() < 0.1 and len(self.rows) > 1:
            one, other = (key - self.base for key in rng.sample(sorted(self.rows), 2))
            self.side_by_side([("u", LIFE.made(rng, one))], [("u", LIFE.made(rng, other))])
            return
        self.transaction(*LIFE.steps(rng, {key - self.base for key in self.rows}, most))

    def truncate(self, rng: Random) -> None:
        """Empty the table; the event has no key, and goes to any partition."""
        self.rng = rng
        self._transaction += 1
        self.rows.clear()
        self.serial += 1
        self._lsn += 8
        self._says = Truth(self.serial, "truncate", transaction=self._transaction)
        value = json.dumps(self._envelope("t", None, None, 1)).encode()
        self._append(rng.randrange(self.partitions), None, value)

    def poison(self, rng: Random) -> None:
        """A record that nobody can read."""
        self._says = Truth(0, "poison")
        self._append(rng.randrange(self.partitions), json.dumps({"id": 0}).encode(), b"{broken")

    def again(self, first: int) -> None:
        """Restart: everything from an event on is sent again, in order, up to now; reads are not."""
        first -= self.truth[first].tombstone
        if self.moves and self.truth[first].came_from is not None:
            # Both halves of a change of key are one event of the log; the first one has a tombstone.
            first -= 2
        for record, truth, header in list(zip(self.log, self.truth, self.headers, strict=True))[first:]:
            if truth.says in ("change", "truncate"):
                self._says, self._header = truth, header
                at = self._partition(record.key) if record.key else record.partition
                self._append(at, record.key, self._sent_again(record.value), record.headers)
        self._header = None

    def _change(self, order: int, op: str, what: Any, new: int = 0) -> int:
        what = {**what, "id": what["id"] + self.base} if isinstance(what, dict) else what + self.base
        new += self.base
        if self.tells_keys and op == "k":
            return self._move(order, what, new)
        if self.moves and op == "u":
            before, self.rows[what] = self.rows[what], change(self.rng, self.rows[what])
            self._whole = self.rows[what]
            self._event(op, None, leave_out(self.rng, before, self._whole, PLACEHOLDER), order + 1)
            self._whole = None
            return order + 1
        if op != "u" or not self.leaves_out or self.rng.random() < 0.5:
            return super()._change(order, op, what, new)
        self._whole = {**what, "name": self.rows[what["id"]]["name"]}
        self.rows[what["id"]] = self._whole
        self._event(op, None, {**self._whole, "name": PLACEHOLDER}, order + 1)
        self._whole = None
        return order + 1

    def _move(self, order: int, old: int, new: int) -> int:
        """A change of key: two events of one place and date, each of which tells the other's key in a header."""
        moved, self._moved_at = {**self.rows.pop(old), "id": new}, self._date("u")
        self._header, self._went_to = (NEW_KEY_HEADER, _key(new)), new
        self._event("d", {"id": old}, None, order + 1)
        self._lsn, self._went_to = self._lsn - 8, None
        self._header, self._whole, self._came_from = (OLD_KEY_HEADER, _key(old)), moved, old
        if self.moves:
            image = leave_out(self.rng, moved, moved, PLACEHOLDER)
        else:
            image = {**moved, "name": PLACEHOLDER} if self.leaves_out and self.rng.random() < 0.5 else moved
        self._event("c", None, image, order + 2)
        self._header = self._whole = self._came_from = self._moved_at = None
        self.rows[new] = moved
        return order + 2

    def _date(self, op: str) -> int:
        return super()._date(op) if self._moved_at is None else self._moved_at

    def _event(self, op: str, before: Row | None, after: Row | None, order: int, *, headers: Headers = ()) -> None:
        """One event; keys are told in headers by `_move` alone, as not every source does."""
        del headers
        self.serial += 1
        image: Any = after or before
        says: Says = "read" if op == "r" else "change"
        row = None if op == "d" else dict(self._whole or image)
        place = self.serial, says, image["id"], row, self._transaction
        self._says = Truth(*place, came_from=self._came_from, went_to=self._went_to)
        super()._event(op, before, after, order)

    def _envelope(self, op: str, before: Row | None, after: Row | None, order: int) -> Row:
        """The same without fields that the sink does not look at: to guess the types of each takes time."""
        whole = super()._envelope(op, before, after, order)
        source = {name: value for name, value in whole["source"].items() if name not in _UNREAD}
        told = {"before": before, "after": after, "source": source, "op": op}
        if self.numbered:
            told["transaction"] = {"id": whole["transaction"]["id"], "total_order": order}
        return {**told, "ts_ns": self._processed_at()} if self.processed else told

    def _processed_at(self) -> int:
        """When the connector has the event that it writes now, which is later each time."""
        return START_NS + 10**12 + len(self.log) * 1_000_000

    def _sent_again(self, value: bytes | None) -> bytes | None:
        value = super()._sent_again(value)
        if value is None or not self.processed:
            return value
        return json.dumps({**json.loads(value), "ts_ns": self._processed_at()}).encode()

    def _append(self, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        told = {} if value is None or self._says.says == "poison" else find_columns(value)
        self.truth.append(attrs.evolve(self._says, tombstone=value is None, told=told))
        self.headers.append(None if value is None else self._header)
        super()._append(partition, key, value, headers)


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """The same with lists and mappings of its own; what is in them never changes."""
    return {name: type(value)(value) if isinstance(value, dict | list) else value for name, value in state.items()}


def _key(key: int) -> bytes:
    return json.dumps({"id": key}).encode()


@attrs.frozen
class Entry:
    """A record, and what it truly says."""

    record: Record
    truth: Truth
