"""Client settings -> a client of librdkafka that is kept, and made anew where settings, or files they name, changed.

librdkafka reads certificates once, and keeps a login's token until most of its time is over, whatever the server says
of it meanwhile: a client that is to do otherwise is another one. The one before is closed, which nobody waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from connector.errors import ConnectorError
from connector.kafka.brokers.sasl import forget_credentials
from connector.kafka.brokers.tls import stamp_files
from connector.kafka.librdkafka_config import build_librdkafka_config
from connector.kafka.trust_anchors import use_anchors
from connector.runtime.lifecycle import start_call

T = TypeVar("T")

_MadeOf = tuple[Mapping[str, str], tuple[int, ...]]


class KeptClient(Generic[T]):
    """A client that its owner asks for each time anew."""

    def __init__(
        self,
        read_settings: Callable[[], Mapping[str, str]],
        make: Callable[[dict[str, Any]], T],
        close: Callable[[T], object],
    ) -> None:
        """Make nothing yet.

        Args:
            read_settings: of now, as librdkafka names them.
            make: takes librdkafka's configuration; raises ConnectorError where there can be no such client.
            close: lets one go that was replaced, in a thread of its own.
        """
        self._read_settings, self._make, self._close = read_settings, make, close
        self._kept: tuple[T, _MadeOf] | None = None

    def get(self) -> T:
        """Return the client of the settings of now; the one before where its files cannot be used as they are now."""
        settings, kept = self._read_settings(), self._kept
        wanted = settings, stamp_files(settings)
        if kept is not None and kept[1] == wanted:
            return kept[0]
        try:
            with use_anchors(settings) as given:
                made = self._make(build_librdkafka_config(given))
        except ConnectorError:
            if kept is None:
                raise
            return kept[0]  # a key whose certificate is still to be written
        self.drop()
        self._kept = made, wanted
        return made

    def renew_login(self) -> bool:
        """Drop the client if it logs in by tokens, and what tokens are made of: brokers may refuse them by now.

        Returns:
            Whether the next one logs in by a token of its own.
        """
        renewed = forget_credentials(self._read_settings())
        if renewed:
            self.drop()
        return renewed

    def close(self) -> None:
        """Close the client, if there is one, and wait for it."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._close(kept[0])

    def drop(self) -> None:
        """Close the client, if there is one; the next is made when it is asked for."""
        kept, self._kept = self._kept, None
        if kept is not None:
            start_call(partial(self._close, kept[0]), "close")
