"""the text of a DDL statement -> which columns it gives other names (pure).

Read: RENAME COLUMN a TO b (MySQL, MariaDB, Oracle, Db2) and CHANGE [COLUMN] a b (MySQL, MariaDB) of ALTER TABLE, with
their quotes. What is in comments and texts is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*"|\[[^\]]*\])
    |(?P<text>'(?:[^'\\]|''|\\.)*')
    |(?P<word>[\w$@]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_RENAME_LENGTH = 5


@attrs.frozen
class Token:
    """One piece of a statement: a bare word, a quoted name, or a sign."""

    text: str
    bare: bool

    def is_word(self, word: str) -> bool:
        """Whether this is a keyword."""
        return self.bare and self.text.upper() == word


def find_column_renames(ddl: str) -> list[tuple[str, str]]:
    """The names before and after of each column that a statement renames, in its order."""
    tokens = list(_split(ddl))
    if not tokens or not tokens[0].is_word("ALTER"):
        return []
    found = []
    for at, token in enumerate(tokens):
        if token.is_word("RENAME"):
            found += _read_rename(tokens[at : at + _RENAME_LENGTH])
        elif token.is_word("CHANGE"):
            found += _read_change(tokens[at + 1 :])
    return [(before, after) for before, after in found if before != after]


def _read_rename(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    if len(tokens) == _RENAME_LENGTH and tokens[1].is_word("COLUMN") and tokens[3].is_word("TO"):
        return [(tokens[2].text, tokens[4].text)]
    return []


def _read_change(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    rest = list(tokens[:5])
    if rest and rest[0].is_word("COLUMN"):
        rest.pop(0)
    if [token.text.upper() for token in rest[:2] if token.bare] == ["IF", "EXISTS"]:
        rest = rest[2:]
    if len(rest) < 2 or "," in (rest[0].text, rest[1].text):  # noqa: PLR2004 - the names before and after
        return []
    return [(rest[0].text, rest[1].text)]


def _split(ddl: str) -> Iterator[Token]:
    for match in _TOKEN.finditer(ddl):
        kind, text = match.lastgroup, match[0]
        if kind == "quoted":
            mark = text[-1]
            yield Token(text[1:-1].replace(mark * 2, mark), bare=False)
        elif kind == "text":
            yield Token("", bare=False)
        elif kind != "skip":
            yield Token(text, bare=True)
