"""the text of a DDL statement -> which columns it gives other names (pure).

Read: RENAME COLUMN a TO b (MySQL, MariaDB, Oracle, Db2) and CHANGE [COLUMN] a b (MySQL, MariaDB) of ALTER TABLE, with
their quotes. What is in comments and texts is passed over, but for comments that these servers carry out (`/*!50100`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|\#[^\n]*|/\*M?!\d*|\*/|/\*.*?\*/)
    |(?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*"|\[[^\]]*\])
    |(?P<text>'(?:[^'\\]|''|\\.)*')
    |(?P<word>[\w$@]+)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)


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
            found += _read_rename(tokens[at + 1 :])
        elif token.is_word("CHANGE"):
            found += _read_change(tokens[at + 1 :])
    return [(before, after) for before, after in found if before != after]


def _read_rename(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    if not tokens or not tokens[0].is_word("COLUMN"):
        return []
    rest = _skip_condition(tokens[1:])
    if len(rest) < 3 or not rest[1].is_word("TO"):  # noqa: PLR2004 - a TO b
        return []
    return [(rest[0].text, rest[2].text)]


def _read_change(tokens: Sequence[Token]) -> list[tuple[str, str]]:
    rest = _skip_condition(tokens[1:] if tokens and tokens[0].is_word("COLUMN") else tokens)
    if len(rest) < 2 or "," in (rest[0].text, rest[1].text):  # noqa: PLR2004 - the names before and after
        return []
    return [(rest[0].text, rest[1].text)]


def _skip_condition(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens behind IF EXISTS, which MariaDB takes before a name."""
    conditional = [token.text.upper() for token in tokens[:2] if token.bare] == ["IF", "EXISTS"]
    return tokens[2:] if conditional else tokens


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
