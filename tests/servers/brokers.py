"""record batches -> brokers that answer as the protocol says, in the versions they are told to offer: no JVM.

Doubles for what no broker of ours can be made to do: speak Azure's versions, say nothing, give out wrong names, cut
their logs. They are written from the protocol's documentation, apart from the reader that they test.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from attrs import define, field

EVENT_HUBS = {0: (3, 5), 1: (4, 6), 2: (0, 2), 3: (0, 5), 17: (0, 0), 18: (0, 1), 23: (0, 0)}
"""What Azure Event Hubs offered in 2019, as users' logs show; SaslHandshake 1 and SaslAuthenticate came later."""
EVENT_HUBS_2022 = {0: (0, 7), 1: (4, 6), 2: (0, 2), 3: (0, 5), 17: (0, 1), 18: (0, 3), 23: (0, 0), 36: (0, 1)}
KAFKA_2_1 = {0: (0, 7), 1: (0, 10), 2: (0, 4), 3: (0, 7), 17: (0, 1), 18: (0, 2), 23: (0, 2), 36: (0, 0)}
KAFKA_2_4 = {0: (0, 8), 1: (0, 11), 2: (0, 5), 3: (0, 9), 17: (0, 1), 18: (0, 3), 23: (0, 3), 36: (0, 1)}
KAFKA_4 = {0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 17: (0, 1), 18: (0, 4), 23: (2, 4), 36: (0, 2)}
REDPANDA = {0: (0, 7), 1: (4, 11), 2: (0, 4), 3: (0, 8), 17: (0, 1), 18: (0, 3), 23: (0, 3), 36: (0, 1)}
ANCIENT = {0: (0, 2), 1: (0, 3), 2: (0, 0), 3: (0, 0), 18: (0, 0)}
"""Kafka 0.10."""
FUTURE = {1: (30, 40), 2: (30, 40), 3: (30, 40), 18: (0, 9)}

At = tuple[str, int]


@define
class Log:
    """A topic-partition: batches as (base, last, leader epoch, bytes)."""

    batches: list[tuple[int, int, int, bytes]] = field(factory=list)
    start: int = 0
    leader: int = 1
    epoch: int = -1
    replica: int = -1
    stable: int = -1
    """Where an open transaction begins, which holds back what is behind it."""
    emptied: int = 0
    """How many offsets at the end have no batch any more."""
    insists: bool = False
    """Whether the leader names the replica to those who asked for none too."""

    def add(self, data: bytes) -> None:
        """Append a batch as its bytes are."""
        base, _ = struct.unpack_from(">qi", data)
        (last,) = struct.unpack_from(">i", data, 23)
        (epoch,) = struct.unpack_from(">i", data, 12)
        self.batches.append((base, base + last, epoch, data))

    @property
    def end(self) -> int:
        """The offset behind the last record, or what was it."""
        return (self.batches[-1][1] + 1 if self.batches else self.start) + self.emptied

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The newest epoch up to this one, and where it ends."""
        older = [one for one in self.batches if one[2] <= epoch]
        newer = [one for one in self.batches if one[2] > epoch]
        return (max((one[2] for one in older), default=-1), newer[0][0] if newer else self.end)


@define
class Asked:
    """A request as it came."""

    node: int
    api: int
    version: int
    client: str
    body: bytes


class Brokers:
    """Nodes of one cluster, each on a port of its own."""

    def __init__(self, offered: Mapping[int, tuple[int, int]], nodes: int = 1) -> None:
        self.offered = dict(offered)
        self.logs: dict[At, Log] = {}
        self.own_logs: dict[int, dict[At, Log]] = {}
        """What a node knows that the others have lost, and that does not hear of them."""
        self.advertised: dict[int, tuple[str, int]] = {}
        self.silent: set[int] = set()
        self.asked: list[Asked] = []
        self.faults: dict[int, list[int]] = {}
        self.partition_faults: dict[At, int] = {}
        """What is said of a topic-partition where somebody asks who leads it."""
        self.throttle_ms: list[int] = []
        self.longest_wait_ms = 20
        """So long a fetch waits for records at most, however long it asks to."""
        self.password: bytes | None = None
        self.mechanism = "PLAIN"
        self.refuses_by_message = False
        """Whether a refused login is told by a message of the mechanism, as Kafka does by OAUTHBEARER, by no code."""
        self.tls: ssl.SSLContext | None = None
        self.lifetime_ms = 0
        self.login_s = 0.0
        """So long a login takes."""
        self.on_fetch: Callable[[Brokers], None] = lambda _: None
        self._listening: dict[int, socket.socket] = {}
        self._ports: dict[int, int] = {}
        self._connections: list[socket.socket] = []
        for node in range(1, nodes + 1):
            listening = socket.create_server(("127.0.0.1", 0))
            self._listening[node] = listening
            self._ports[node] = listening.getsockname()[1]
            self.advertised[node] = ("127.0.0.1", listening.getsockname()[1])

    def __enter__(self) -> Brokers:
        for node, listening in self._listening.items():
            threading.Thread(target=self._welcome, args=(node, listening), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for node in list(self._listening):
            self.kill(node)

    def port(self, node: int = 1) -> int:
        """Where a node listens."""
        return self._ports[node]

    @property
    def servers(self) -> str:
        """The first node, as bootstrap.servers."""
        return f"127.0.0.1:{self.port()}"

    def kill(self, node: int) -> None:
        """End a node, and all connections of the cluster."""
        listening = self._listening[node]
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        self.cut()

    def cut(self) -> None:
        """Cut all connections."""
        for one in self._connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._connections.clear()

    def versions(self, api: int) -> set[int]:
        """The versions that were asked of an API."""
        return {one.version for one in self.asked if one.api == api}

    def _welcome(self, node: int, listening: socket.socket) -> None:
        while True:
            try:
                one, _ = listening.accept()
            except OSError:
                return
            if self.tls is not None:
                try:
                    one = self.tls.wrap_socket(one, server_side=True)
                except OSError:
                    continue
            self._connections.append(one)
            threading.Thread(target=self._attend, args=(node, one), daemon=True).start()

    def _attend(self, node: int, one: socket.socket) -> None:
        raw = False
        with suppress(OSError, ConnectionError):
            while True:
                data = _exactly(one, struct.unpack(">i", _exactly(one, 4))[0])
                if node in self.silent:
                    continue
                if raw:
                    if data != self.password:
                        return
                    one.sendall(struct.pack(">i", 0))
                    raw = False
                    continue
                api, version, number, size = struct.unpack_from(">hhih", data)
                client, body = data[10 : 10 + size].decode(), data[10 + size :]
                self.asked.append(Asked(node, api, version, client, body))
                oldest, newest = self.offered.get(api, (1, 0))
                if api == 18:
                    answer = self._versions() if oldest <= version <= newest else struct.pack(">hi", 35, 0)
                elif not oldest <= version <= newest:
                    return  # as brokers do
                else:
                    answer = self._answer(node, api, version, _Fields(body))
                    raw = api == 17 and version == 0
                one.sendall(struct.pack(">ii", len(answer) + 4, number) + answer)

    def _versions(self) -> bytes:
        listed = b"".join(struct.pack(">hhh", api, *some) for api, some in sorted(self.offered.items()))
        return struct.pack(">hi", 0, len(self.offered)) + listed

    def _answer(self, node: int, api: int, version: int, asked: _Fields) -> bytes:
        answers = {1: self._fetch, 2: self._bounds, 3: self._metadata, 17: self._handshake, 23: self._epochs}
        if api == 36:
            return self._authenticate(version, asked)
        return answers[api](node, version, asked)

    def _fault(self, api: int) -> int:
        waiting = self.faults.get(api, [])
        return waiting.pop(0) if waiting else 0

    def _handshake(self, _: int, __: int, asked: _Fields) -> bytes:
        good = asked.text() == self.mechanism
        return struct.pack(">hi", 0 if good else 33, 1) + _text(self.mechanism)

    def _authenticate(self, version: int, asked: _Fields) -> bytes:
        time.sleep(self.login_s)
        good = asked.take(asked.number("i")) == self.password
        if not good and self.refuses_by_message:
            told = b'{"status":"invalid_token"}'
            answer = struct.pack(">h", 0) + _text("") + struct.pack(">i", len(told)) + told
            return answer + (struct.pack(">q", 0) if version >= 1 else b"")
        answer = struct.pack(">h", 0 if good else 58) + _text("" if good else "wrong") + struct.pack(">i", 0)
        return answer + (struct.pack(">q", self.lifetime_ms) if version >= 1 else b"")

    def _metadata(self, node: int, version: int, asked: _Fields) -> bytes:
        count, known = asked.number("i"), self.own_logs.get(node, self.logs)
        topics = [asked.text() for _ in range(count)] if count >= 0 else sorted({topic for topic, _ in known})
        if version >= 4:
            assert asked.number("b") == 0 or count < 0  # no topic is created
        asked.finish()
        answer = struct.pack(">i", 0) if version >= 3 else b""
        answer += struct.pack(">i", len(self.advertised))
        for one, (host, port) in self.advertised.items():
            answer += struct.pack(">i", one) + _text(host) + struct.pack(">i", port) + _text("rack")
        answer += _text("cluster") if version >= 2 else b""
        answer += struct.pack(">ii", 1, len(topics))
        code = self._fault(3)
        for topic in topics:
            logs = {at: log for at, log in known.items() if at[0] == topic and not code}
            answer += (
                struct.pack(">h", code or (0 if logs else 3)) + _text(topic) + b"\0" + struct.pack(">i", len(logs))
            )
            for (_, partition), log in logs.items():
                answer += struct.pack(">hii", self.partition_faults.get((topic, partition), 0), partition, log.leader)
                answer += struct.pack(">i", log.epoch) if version >= 7 else b""
                answer += struct.pack(">iiii", 1, 1, 1, 1) + (struct.pack(">i", 0) if version >= 5 else b"")
        return answer

    def _bounds(self, node: int, version: int, asked: _Fields) -> bytes:
        asked.number("i")
        committed = version >= 2 and asked.number("b") == 1
        asked.number("i")
        at = (asked.text(), asked.number("i") * 0 + asked.number("i"))
        if version >= 4:
            asked.number("i")
        time = asked.number("q")
        asked.finish()
        log = self.logs[at]
        code = self._fault(2) or (0 if log.leader == node else 6)
        answer = struct.pack(">i", 0) if version >= 2 else b""
        answer += struct.pack(">i", 1) + _text(at[0]) + struct.pack(">i", 1)
        end = log.stable if committed and log.stable >= 0 else log.end
        answer += struct.pack(">ihqq", at[1], code, -1, log.start if time == -2 else end)
        return answer + (struct.pack(">i", log.epoch) if version >= 4 else b"")

    def _epochs(self, node: int, _: int, asked: _Fields) -> bytes:
        asked.number("i")
        asked.number("i")
        topic = asked.text()
        _, partition, _, epoch = asked.numbers("iiii")
        asked.finish()
        log = self.logs[topic, partition]
        code = self._fault(23) or (0 if log.leader == node else 6)
        answer = struct.pack(">ii", 0, 1) + _text(topic) + struct.pack(">i", 1)
        return answer + struct.pack(">hiiq", code, partition, *log.epoch_end(epoch))

    def _fetch(self, node: int, version: int, asked: _Fields) -> bytes:
        self.on_fetch(self)
        _, wait_ms, _, _ = asked.numbers("iiii")
        committed = asked.number("b") == 1
        if version >= 7:
            asked.numbers("ii")
        wanted: dict[str, list[tuple[int, int, int, int]]] = {}
        for _ in range(asked.number("i")):
            topic = asked.text()
            wanted[topic] = [_wanted_partition(version, asked) for _ in range(asked.number("i"))]
        if version >= 7:
            assert asked.number("i") == 0
        rack = asked.text() if version >= 11 else ""
        asked.finish()
        throttle = self.throttle_ms.pop(0) if self.throttle_ms else 0
        answer = struct.pack(">i", throttle) + (struct.pack(">hi", 0, 0) if version >= 7 else b"")
        if throttle:
            return answer + struct.pack(">i", 0)
        given = {
            topic: [self._fetch_one(node, version, (rack, committed), (topic, one[0]), one[1:]) for one in ones]
            for topic, ones in wanted.items()
        }
        if not any(data for ones in given.values() for data, _ in ones):
            time.sleep(min(wait_ms, self.longest_wait_ms) / 1000)
        answer += struct.pack(">i", len(given))
        for topic, ones in given.items():
            answer += _text(topic) + struct.pack(">i", len(ones)) + b"".join(one for _, one in ones)
        return answer

    def _fetch_one(
        self, node: int, version: int, by: tuple[str, bool], at: At, asked: tuple[int, int, int]
    ) -> tuple[bool, bytes]:
        """What is given of a topic-partition, and whether it is worth an answer at once."""
        (rack, committed), (epoch, offset, most) = by, asked
        log = self.own_logs.get(node, self.logs)[at]
        code = self._fault(1) or self._refused(node, log, offset, epoch)
        data, preferred = b"", -1
        if not code and (rack or log.insists) and log.replica != -1 and node == log.leader:
            preferred = log.replica
        elif not code:
            for base, last, _, batch in log.batches:
                if last < offset:
                    continue
                if committed and 0 <= log.stable <= base:
                    break
                if data and len(data) + len(batch) > most:
                    break
                data += batch
        answer = struct.pack(">ihqq", at[1], code, log.end, log.end if log.stable < 0 else log.stable)
        answer += struct.pack(">q", log.start) if version >= 5 else b""
        answer += struct.pack(">i", 0) + (struct.pack(">i", preferred) if version >= 11 else b"")
        return bool(data or code or preferred >= 0), answer + struct.pack(">i", len(data)) + data

    def _refused(self, node: int, log: Log, offset: int, epoch: int) -> int:
        if node not in (log.leader, log.replica):
            return 6
        if epoch >= 0 and epoch != log.epoch:
            return 74 if epoch < log.epoch else 75
        return 0 if log.start <= offset <= log.end else 1


def _wanted_partition(version: int, asked: _Fields) -> tuple[int, int, int, int]:
    """Partition, leader epoch, offset and most bytes, as a fetch asks for them."""
    partition = asked.number("i")
    epoch = asked.number("i") if version >= 9 else -1
    offset = asked.number("q")
    if version >= 5:
        asked.number("q")
    return partition, epoch, offset, asked.number("i")


class _Fields:
    """The fields of a request, in order."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def numbers(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f">{layout}", self._data, self._at)
        self._at += struct.calcsize(f">{layout}")
        return found

    def number(self, layout: str) -> int:
        return int(self.numbers(layout)[0])

    def take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.take(self.number("h")).decode()

    def finish(self) -> None:
        """Nothing may be left: who sends more has another version in mind."""
        assert self._at == len(self._data), f"{len(self._data) - self._at} bytes too many"


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def _exactly(one: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = one.recv(size - len(data))
        if not more:
            raise ConnectionError("gone")
        data += more
    return data
