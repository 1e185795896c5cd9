"""text with `${provider:...}` references -> text: Kafka's configuration providers.

`${env:NAME}`, `${file:/path:key}` (a properties file) and `${dir:/path:file name}` are always on. As in Kafka a value
that was looked up is not searched again. Debezium Server's `${NAME}` and `${NAME:default}` are variables too: no
provider has a name in capitals. A default may hold references itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs
import javaproperties

# Same shape as Kafka's ConfigTransformer: provider, optional path, key. No provider has a longer name: without a limit,
# and with second looks, a text of many openings would be read through from each.
REFERENCE = re.compile(r"\$\{([^}:]{0,100}+):(?:([^}:]*+):)?+([^}]*+)\}")
BARE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_.]*)\}")
_EITHER = re.compile(rf"{REFERENCE.pattern}|{BARE_REFERENCE.pattern}")
_WITH_DEFAULT = re.compile(r"\$\{([A-Z][A-Z0-9_]{0,98}+):")
_MARK = re.compile(r"\$\{|\}")


def has_reference(text: str) -> bool:
    """Tell whether a text refers to something."""
    return _EITHER.search(text, 0, text.rfind("}") + 1) is not None


class UnresolvedReference(LookupError):
    """A reference that nothing answers: `reference`, `why` and `todo`.

    `shortened` leaves out what may be a value: all behind the name where that is no provider's.
    """

    def __init__(self, reference: str, why: str, todo: str, shortened: str = "") -> None:
        """Keep the parts."""
        super().__init__(reference, why, todo, shortened)
        self.reference = reference
        self.why = why
        self.todo = todo
        self.shortened = shortened or reference


@attrs.frozen
class ConfigProviders:
    """Answers references; `environ` is what `${env:NAME}` looks into."""

    environ: Mapping[str, str] = attrs.field(repr=False)

    def resolve(self, text: str, *, bare: bool = True) -> str:
        """Replace every reference; raises Unresolved. With `bare`, `${NAME}` without a provider is a variable."""
        return "".join(self._resolve(text, _EITHER if bare else REFERENCE))

    def _resolve(self, text: str, references: re.Pattern[str]) -> Iterator[str]:
        """The text in pieces. A variable with a default becomes its value, or its default, which is read on."""
        ends, after_default, at, last = _find_ends(text), set[int](), 0, text.rfind("}") + 1
        while mark := _MARK.search(text, at):
            start = mark.start()
            yield text[at:start]
            variable = _WITH_DEFAULT.match(text, start) if start in ends else None
            reference = None if variable else references.match(text, start, last)
            at = mark.end()
            if variable and variable[1] in self.environ:
                yield self.environ[variable[1]]
                at = ends[start] + 1
            elif variable:
                after_default.add(ends[start])
                at = variable.end()
            elif reference:
                yield self._answer(reference)
                at = reference.end()
            elif start not in after_default:
                yield mark[0]
        yield text[at:]

    def _answer(self, match: re.Match[str]) -> str:
        provider, path, key, *variable = match.groups()
        if provider is None:
            return self._variable(match[0], variable[0])
        lookups: dict[str, Callable[[str, str], str]] = {"env": self._env, "file": _read_file, "dir": _read_dir_file}
        if provider not in lookups:
            todo, shortened = "use env, file or dir, or a variable in capitals", f"${{{provider}:...}}"
            raise UnresolvedReference(match[0], "names an unknown provider", todo, shortened)
        try:
            return lookups[provider](path or "", key)
        except KeyError as missing:
            why = f"cannot be resolved: {missing.args[0]}"
            raise UnresolvedReference(match[0], why, "provide it or correct the reference") from None

    def _variable(self, reference: str, name: str) -> str:
        if name not in self.environ:
            raise UnresolvedReference(reference, "names no provider", f"write ${{env:{name}}}")
        return self.environ[name]

    def _env(self, path: str, key: str) -> str:
        name = f"{path}:{key}" if path else key
        if name not in self.environ:
            raise KeyError("the environment has no such variable")
        return self.environ[name]


def _find_ends(text: str) -> dict[int, int]:
    """Where each `${` is closed, by where it begins."""
    ends, open_ = dict[int, int](), list[int]()
    for mark in _MARK.finditer(text):
        if mark[0] != "}":
            open_.append(mark.start())
        elif open_:
            ends[open_.pop()] = mark.start()
    return ends


def _read_file(path: str, key: str) -> str:
    try:
        values = javaproperties.loads(Path(path).read_text("utf-8-sig"))
    except (OSError, ValueError):
        raise KeyError("the file cannot be read") from None
    if key not in values:
        raise KeyError("the file has no such key")
    return values[key]


def _read_dir_file(path: str, key: str) -> str:
    if not path or "/" in key or key in {"", ".", ".."}:
        raise KeyError("it must name a directory and a file right in it")
    try:
        return (Path(path) / key).read_text("utf-8")
    except (OSError, ValueError):
        raise KeyError("the directory has no such readable file") from None
