"""texts -> the same texts without secrets: for every line that is logged or printed, whoever wrote it.

Secrets are found by how they stand in a text (in a URL, behind a name that means a secret) and by their values, as far
as these were `remember_secret`ed from the configuration: for good, or as long as a `SecretScope` lasts.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextvars import ContextVar, Token
from typing import Any, Self

MASK = "***"
SENSITIVE_NAMES = (
    r"passw(?:or)?d|passphrase|secret|token|credential|jaas|signature|authorization|connection[._-]?string"
    r"|user[._-]?info|(?:api|access|account|shared|encryption|decryption|private|sse|store)[._-]?key"
    r"|(?<![a-z])(?:sas|pwd|sig)(?![a-z])"
)
"""What the names of secret properties have in them; Python and Java read it alike, whatever the case."""
IN_URL = r"://[^\s/:@]*:[^\s/'\"@]+@"
"""User and password of a URL."""
SPARK_REGEX = rf"(?i){SENSITIVE_NAMES}|[.]header[.]|{IN_URL}"
"""For Spark: names of properties, or values, that its pages and logs do not show."""

_SHORTEST = 6
_PUBLIC = re.compile(r"(?:provider|source|type|enabled|ur[il]|location|algorithm|class|factory|endpoint|ms)$")
_SECRET_NAME = re.compile(SENSITIVE_NAMES, re.IGNORECASE)
_URL = re.compile(r"://[^\s/:@'\"]*:[^\s/'\"]+@|(?<=jdbc:oracle:)[^\s@]{0,1000}@", re.IGNORECASE)
# Time grows with the text, and no faster: whoever sends a text chooses how long it is. A word is looked at from its
# beginning alone, once (`(?>`, `*+`), and where a brace is open and never closed is not looked for again and again.
_PAIR = re.compile(
    rf"(?<![\w.-])(?>[\w.-]*?(?:{SENSITIVE_NAMES}))[\w.-]*+[\"']?\s?=\s?"
    rf"|[\"'](?>[\w.-]*?(?:{SENSITIVE_NAMES}))[\w.-]*+[\"']\s?:\s?",
    re.IGNORECASE,
)
_VALUE = re.compile(r"\"(?:\\.|[^\"\\])*+\"|'(?:\\.|[^'\\])*+'|[^\s&;,)\]}'\"]++")
_PASSWORDS = re.compile(
    r"://[^\s/:@]*:([^\s/'\"]+)@|(?:password|pwd|token|secret|credential)=([^\s&;]+)", re.IGNORECASE
)
_QUOTED = re.compile(r"\b(?:password|clientSecret)\s*=\s*(?:\"((?:\\.|[^\"\\])*)\"|'([^']*)'|([^\s;\"']+))")
MOST_PER_SCOPE = 200
"""How many values a `SecretScope` remembers: each makes every line that is logged meanwhile take longer."""
_scope: ContextVar[SecretScope | None] = ContextVar("scope", default=None)


class KnownSecrets:
    """Values that are masked wherever they stand, and how often each is remembered. All threads use it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._counts, self._change = Counter[str](), threading.Lock()
        self._longest_first: tuple[str, ...] | None = ()

    def count(self, values: Iterable[str], times: int) -> None:
        """Remember each value once more, or once less."""
        with self._change:
            for value in values:
                self._counts[value] += times
                if self._counts[value] <= 0:
                    del self._counts[value]
            self._longest_first = None

    def forget_all(self) -> None:
        """Remember none any more."""
        with self._change:
            self._counts.clear()
            self._longest_first = None

    @property
    def longest_first(self) -> tuple[str, ...]:
        """The values in the order in which they are masked: one may hold another."""
        secrets = self._longest_first
        if secrets is None:
            with self._change:
                secrets = self._longest_first = tuple(sorted(self._counts, key=len, reverse=True))
        return secrets


_known = KnownSecrets()


def is_secret(name: str) -> bool:
    """Tell by a property's name whether its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def holds_secret(name: str) -> bool:
    """Tell by a property's name whether its value is a secret, and not only where one is or of what kind."""
    return is_secret(name) and _PUBLIC.search(name) is None


def remember_secret(name: str, value: str) -> None:
    """Keep what is secret in a property's value: all of it, what stands in its URL, or in its login."""
    parts = [part for match in (*_PASSWORDS.findall(value), *_QUOTED.findall(value)) for part in match]
    if holds_secret(name):
        parts += [value, value.partition(":")[2]]
    kept = [part for part in parts if len(part) >= _SHORTEST]
    scope = _scope.get()
    if scope is not None:
        kept = kept[: MOST_PER_SCOPE - len(scope.values)]
        scope.values += kept
    _known.count(kept, 1)


class SecretScope:
    """What is remembered within it, by the same thread, is forgotten when somebody says so.

    A configuration may come from anybody who reaches the port, and again and again: what it calls a secret would be
    masked in the lines of all others for as long as the process lives.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.values = list[str]()
        self._before: Token[SecretScope | None] | None = None

    def __enter__(self) -> Self:
        self._before = _scope.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._before is not None
        _scope.reset(self._before)

    def forget(self) -> None:
        """Mask these values no longer, but for those that others remember too."""
        values, self.values = self.values, []
        _known.count(values, -1)


def redact(text: str) -> str:
    """The text with a mask for each secret."""
    for value in _known.longest_first:
        if value in text:
            text = text.replace(value, MASK)
    text = _URL.sub(lambda match: f"{'://' if match[0].startswith('://') else ''}{MASK}@", text)
    return "".join(_mask_pairs(text))


def _mask_pairs(text: str) -> Iterator[str]:
    """The text in pieces, with a mask for each value behind a secret's name."""
    at, last_brace = 0, text.rfind("}")
    name = _PAIR.search(text)
    while name is not None:
        end = _end_of_value(text, name.end(), last_brace)
        if end is not None:
            yield text[at : name.end()] + MASK
            at = end
        name = _PAIR.search(text, end or name.end())
    yield text[at:]


def _end_of_value(text: str, start: int, last_brace: int) -> int | None:
    """Where a value ends that begins here; None where none does, or only the dots of an advice."""
    if text.startswith("{", start) and start < last_brace:
        return text.index("}", start) + 1
    value = _VALUE.match(text, start)
    return value.end() if value and value[0].strip("\"'") != "..." else None


def redact_all(value: Any) -> Any:
    """Texts within lists, tuples and mappings redacted; everything else as it is, keys too."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redact_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(redact_all, value)) if type(value) in {list, tuple} else value
    return value


def redact_login(text: str) -> str:
    """A value of a property for a message about it: without what may be a user's name and password before an @."""
    head, at, host = text.rpartition("@")
    scheme, slashes, _ = head.partition("://")
    return redact(f"{scheme}://{MASK}@{host}" if at and slashes else f"{MASK}@{host}" if at else text)
