"""A cluster -> records written to it by a thread of a test, until the test has seen enough."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Self

from confluent_kafka import Producer

from tests.servers.cluster import Cluster, send

_FLUSH_S = 120


def write_in_order(cluster: Cluster, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
    """Write values with their keys to partition 0 of a topic; returns when all are acknowledged."""
    producer = _open_producer(cluster, {})
    for value, key in records:
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(_FLUSH_S) == 0


def _open_producer(cluster: Cluster, options: Mapping[str, str | int]) -> Producer:
    return Producer({"bootstrap.servers": cluster.servers, "enable.idempotence": True, "log_level": 0, **options})


class ClusterWriter(ABC):
    """Writes between enter and exit, each record acknowledged by all; exit fails where one was not."""

    def __init__(self, cluster: Cluster, **options: str | int) -> None:
        """Describe the writer; `options` are the producer's, `_` for a dot."""
        named = {key.replace("_", "."): value for key, value in options.items()}
        self._producer = _open_producer(cluster, named)
        self._stop, self._failures = threading.Event(), list[str]()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Start to write."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop; everything that was written has arrived."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(_FLUSH_S) == 0
        assert not self._failures

    @abstractmethod
    def _write(self) -> None:
        """Write until `_stop` is set."""

    def _send(self, at: tuple[str, int], value: bytes | None, key: bytes | None = None) -> None:
        send(self._producer, at, value, key, self._note)

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self._failures.append(repr(error))
            raise

    def _note(self, error: object, _: object) -> None:
        if error is not None:
            self._failures.append(str(error))
