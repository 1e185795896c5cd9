"""Settings and the brokers' own word -> the reader that tasks use, or why none can. On the driver, at the start."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from connector.errors import FatalError, RetriableError
from connector.kafka.admin import KafkaAdmin
from connector.kafka.brokers.check import check_brokers
from connector.kafka.brokers.connection import UnsupportedBroker
from connector.kafka.brokers.sasl import knows_login
from connector.kafka.consumer.readers import LIBRDKAFKA, NATIVE, choose_reader, with_reader
from connector.settings import KafkaSettings

_LIBRDKAFKA_VERSIONS = {1: (0, 16), 2: (0, 7), 3: (0, 13)}
"""What librdkafka speaks of Fetch, ListOffsets and Metadata."""


@attrs.frozen
class ReaderCheck:
    """Settings that name their reader, what it is in one line, and what else a person may want to know."""

    kafka: KafkaSettings
    line: str
    notes: tuple[str, ...] = ()


def check_reader(kafka: KafkaSettings, within_s: float | None = None) -> ReaderCheck:
    """Ask the brokers what they offer, and settle on a reader.

    Raises:
        RetriableError: no bootstrap server answers in time.
        FatalError: a broker refuses us, or offers nothing that either reader knows.
    """
    choice = choose_reader(kafka)
    if choice.kind == NATIVE:
        client = kafka.client("consumer")
        if not knows_login(client):
            mechanism = client.get("sasl.mechanisms", "")
            raise FatalError(f"the native reader has no logins by {mechanism}; set consumer.reader=auto or librdkafka")
        try:
            report = check_brokers(client, within_s)
            line = f"records are read by the native reader: {choice.reason} ({report.summary})"
            return ReaderCheck(with_reader(kafka, NATIVE), line, report.notes)
        except UnsupportedBroker as error:
            if kafka.reading.reader != "auto" or not _is_known_to_librdkafka(error.offered):
                raise
            choice = attrs.evolve(choice, kind=LIBRDKAFKA, reason=str(error))
    notes = _look_beside(kafka, within_s) if choose_reader(kafka).kind == LIBRDKAFKA else ()
    return ReaderCheck(with_reader(kafka, LIBRDKAFKA), f"records are read by librdkafka: {choice.reason}", notes)


def _look_beside(kafka: KafkaSettings, within_s: float | None) -> tuple[str, ...]:
    """Ask by our own protocol too, where it has the login: librdkafka tells of wrong passwords late, or never.

    Raises:
        FatalError: a broker refuses our login or certificate, or librdkafka has no such login here.
    """
    if choose_reader(with_reader(kafka, "auto")).kind == LIBRDKAFKA:
        KafkaAdmin(kafka)  # says what to install where librdkafka has not been built with the login
        return ()
    try:
        return check_brokers(kafka.client("consumer"), within_s).notes
    except UnsupportedBroker:
        return ()
    except RetriableError as error:
        return (str(error),)


def _is_known_to_librdkafka(offered: Mapping[int, tuple[int, int]]) -> bool:
    return all(
        key in offered and offered[key][0] <= newest and oldest <= offered[key][1]
        for key, (oldest, newest) in _LIBRDKAFKA_VERSIONS.items()
    )
