"""Bootstrap servers -> whether anybody listens there; librdkafka tries those that refuse until time is over."""

from __future__ import annotations

import socket
from concurrent.futures import as_completed
from contextlib import suppress
from functools import partial

from connector.errors import RetriableError
from connector.kafka.brokers.address import ClusterAddress, HostPort, format_host
from connector.runtime.lifecycle import start_call


def require_listener(address: ClusterAddress, within_s: float) -> None:
    """Return as soon as one bootstrap server takes a connection, or when the time is over.

    Raises:
        RetriableError: every one refuses, or has no address; each is named with its reason.
    """
    # In threads that keep no process alive: name servers may take longer than anybody waits.
    attempts = [start_call(partial(_find_refusal, host, within_s), "listener") for host in address.hosts]
    reasons = list[str]()
    with suppress(TimeoutError):
        for one in as_completed(attempts, within_s):
            reason = one.result()
            if reason is None:
                return
            reasons.append(reason)
    if len(reasons) == len(attempts):
        raise RetriableError(f"no bootstrap server answers: {'; '.join(sorted(reasons))}")


def _find_refusal(host: HostPort, within_s: float) -> str | None:
    """Return why a server takes no connection; None where it does, or says nothing."""
    try:
        socket.create_connection(host, within_s).close()
    except TimeoutError:
        return None
    except (OSError, UnicodeError, OverflowError) as error:
        return f"{format_host(host)}: {error.strerror if isinstance(error, OSError) else error}"
    return None
