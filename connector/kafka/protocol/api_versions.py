"""What a broker offers -> the version of each request that both sides know, or what is missing, by name (pure).

Kafka from 2.1 on offers a version of each, as do Redpanda, Confluent and Azure Event Hubs (Fetch 4 to 6).
Source: Kafka's protocol documentation, "Retrieving Supported API versions".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import attrs

from connector.kafka.protocol.error_codes import name_error
from connector.kafka.protocol.primitives import ResponseReader


@attrs.frozen
class Api:
    """A kind of request, by its name and key in the protocol, with the versions that are written and read here."""

    name: str
    key: int
    oldest: int
    newest: int


FETCH = Api("Fetch", 1, 4, 11)
LIST_OFFSETS = Api("ListOffsets", 2, 1, 5)
METADATA = Api("Metadata", 3, 1, 7)
SASL_HANDSHAKE = Api("SaslHandshake", 17, 0, 1)
API_VERSIONS = Api("ApiVersions", 18, 0, 0)
OFFSET_FOR_LEADER_EPOCH = Api("OffsetForLeaderEpoch", 23, 3, 3)
"""Older versions ask for rights on the whole cluster, which who reads a topic need not have."""

SASL_AUTHENTICATE = Api("SaslAuthenticate", 36, 0, 1)

READING = (FETCH, LIST_OFFSETS, METADATA)
"""What records cannot be read without."""

_UNSUPPORTED_VERSION = 35
_ALL = (FETCH, LIST_OFFSETS, METADATA, SASL_HANDSHAKE, OFFSET_FOR_LEADER_EPOCH, SASL_AUTHENTICATE)
_UNLIMITED = 0x7FFF


@attrs.frozen
class ApiVersions:
    """The newest version of each request that both sides know; a request without one is left out."""

    common: Mapping[Api, int]
    offered: Mapping[int, tuple[int, int]] = attrs.field(repr=False)

    def find(self, api: Api) -> int | None:
        """Return the version to use; None when there is none that both know."""
        return API_VERSIONS.newest if api is API_VERSIONS else self.common.get(api)

    def name_missing(self, wanted: Iterable[Api] = READING) -> str:
        """Name the requests that cannot be made, with what both sides know of each; empty when none is missing."""
        return "; ".join(
            f"{self._describe(api)}, icebridge {format_range(api.oldest, api.newest)}"
            for api in wanted
            if api not in self.common
        )

    def _describe(self, api: Api) -> str:
        if api.key not in self.offered:
            return f"{api.name}: the broker offers none"
        return f"{api.name}: the broker offers {format_range(*self.offered[api.key])}"


def format_range(oldest: int, newest: int) -> str:
    """Return a range of versions as text."""
    return f"version {oldest}" if oldest == newest else f"versions {oldest} to {newest}"


def negotiate(offered: Mapping[int, tuple[int, int]]) -> ApiVersions:
    """Take the newest version of each request that both sides know."""
    common = {}
    for api in _ALL:
        oldest, newest = offered.get(api.key, (_UNLIMITED, -1))
        if (version := min(api.newest, newest)) >= max(api.oldest, oldest):
            common[api] = version
    return ApiVersions(common, dict(offered))


class UnsupportedApiVersions(ValueError):
    """The broker cannot even say what it offers in a way that we read."""


@attrs.frozen
class ApiVersionsRequest:
    """Asks what a broker offers."""

    api = API_VERSIONS

    def encode(self, _: int) -> bytes:
        """Nothing needs to be said."""
        return b""

    def parse(self, _: int, answer: ResponseReader) -> ApiVersions:
        """Read what is offered.

        Raises:
            UnsupportedApiVersions: the broker refuses to say.
        """
        if code := answer.number("h"):
            reason = "does not know the request" if code == _UNSUPPORTED_VERSION else f"answers {name_error(code)}"
            raise UnsupportedApiVersions(f"ApiVersions: the broker {reason}")
        try:
            return negotiate({key: (low, high) for key, low, high in answer.rows("hhh")})
        except struct.error as error:
            raise UnsupportedApiVersions("ApiVersions: the answer is none") from error
