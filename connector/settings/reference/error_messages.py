"""our modules' source -> docs/reference/errors.md: every error that a user can meet, and what to do.

`python -m connector.settings.reference.error_messages` writes it again; a test fails when it is stale. Messages are
read from the calls that make them, so that none is missing: by the rule of `connector.errors` each says what happened,
where, and, behind a semicolon, what to do.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from attrs import frozen

PAGE = Path("docs/reference/errors.md")
PACKAGES = ("connector", "serde")
_ROOT = Path(__file__).parents[3]
_CONFIG, _RETRY, _STOP, _LETTER, _REST, _SIGNAL = "config", "retry", "stop", "letter", "rest", "signal"
_BATCH = "batch"
CHAPTER_OF = {
    "ConfigError": _CONFIG,
    "add_fault": _CONFIG,
    "InvalidValue": _CONFIG,
    "PropertyProblem": _CONFIG,
    "RetriableError": _RETRY,
    "CommitRefused": _RETRY,
    "OutdatedFiles": _RETRY,
    "CommitUnknown": _RETRY,
    "NoTopics": _RETRY,
    "TimeOver": _RETRY,
    "FatalError": _STOP,
    "NoBranchError": _STOP,
    "TableGoneError": _STOP,
    "UnsupportedBroker": _STOP,
    "RefusedLogin": _STOP,
    "GapError": _STOP,
    "DataFault": _LETTER,
    "Unfit": _LETTER,
    "UnreadableRecords": _BATCH,
    "RestError": _REST,
    "InvalidSignal": _SIGNAL,
    "Fail": _STOP,
}
"""Class of an error, or function that notes one -> the page's chapter."""
_PAIRS = frozenset({"add_fault", "InvalidValue", "PropertyProblem"})
"""These take what happened and what to do apart."""
_CHAPTERS = {
    _CONFIG: (
        "The configuration cannot be used",
        """\
Exit code 3. All errors are reported at once, each with its file, line and key. `icebridge validate FILE` reports them
without starting anything.""",
        "change the value",
    ),
    _STOP: (
        "The run ends",
        "Exit code 1. Nothing is lost or skipped: the next start continues after the last commit.",
        "follow the message and start again, or report it with the log",
    ),
    _RETRY: (
        "Retried",
        """\
Another system is unavailable, or another writer came first. The call is retried for `errors.retry.timeout` (2 minutes);
then the run ends with exit code 1 and this message. Nothing is lost.""",
        "make sure that the system named here answers (`icebridge doctor FILE`), then start again",
    ),
    _LETTER: (
        "One record cannot be used",
        """\
With `errors.tolerance=all` the record becomes a dead letter with this reason; otherwise the run ends, and names topic,
partition and offset. [Repair and replay them](../how-to/dead-letters.md).""",
        "`icebridge dlq show` prints the record; repair and replay it",
    ),
    _BATCH: (
        "A record batch cannot be read",
        """\
What a broker sent is not what Kafka's protocol says. The batch is a dead letter whose value has its bytes, and which
cannot be replayed; with `errors.tolerance=none`, or where the next batch cannot be found, the run ends and says where.
[More](../how-to/dead-letters.md).""",
        "look for what damaged it (Kafka's DumpLogSegments); write its rows by other means",
    ),
    _SIGNAL: (
        "A signal is not understood",
        "It is ignored with a warning and a notification; the source continues. [Signals](../how-to/signals.md).",
        "send it again, corrected",
    ),
    _REST: (
        "A request is refused",
        "Answers of the REST interface, as Kafka Connect's: a status and this message. [REST](../how-to/rest.md).",
        "change the request",
    ),
}
WORDS_OF_OTHERS = {
    "connector.cli.connect_config": "faults of files, as told elsewhere",
    "connector.iceberg.commit.settlement": "what was being done, and that deletes came since it began",
    "connector.iceberg.java": "Iceberg's: what was being done, then each exception and its cause",
    "connector.kafka.client_errors": "librdkafka's",
    "connector.kafka.registry.glue": "the answer's code of AWS Glue",
    "connector.kafka.consumer.records.record_batches": "that a record batch is not as it was written",
    "connector.opensearch.bulk.bulk_processor": "OpenSearch's reason to reject items for now",
    "connector.opensearch.bulk.item_results": "what the caller says",
    "connector.opensearch.client": "OpenSearch's",
    "connector.runtime.spark.task_errors": "the store's",
    "connector.server.worker": "Kafka Connect's words for a connector that is not there",
    "connector.settings.configdef.loader": "all faults together",
    "connector.settings.configdef.reader": "why a reference such as ${env:NAME} cannot be looked up",
    "connector.settings.converters.schema_registry": "what the caller says",
    "connector.settings.kafka.security": "why a key of the Java client has no counterpart",
    "connector.settings.sink.settings": "all faults together",
    "connector.source.changes.read_errors": "Spark's or the store's, about a file",
    "connector.source.changes.key_values": "that a key column is null",
    "serde.avro.single_datum": "that a datum ends too early or late, holds a value outside its schema, or no UTF-8",
    "serde.protobuf.single_message": "that a message ends too early, holds a value outside its schema, or no UTF-8",
}
"""Module -> whose words some messages in it are made of: nothing in these can be searched for here."""
_PARTS_OF_PLACES = {"at[0]": "<topic>", "at[1]": "<partition>"}
_INTRO = """\
# Errors

Made from the code by `python -m connector.settings.reference.error_messages`; do not edit. Words in
`<angle brackets>` vary: search this page for the other words. Messages of Kafka, Iceberg, Spark and OpenSearch
follow our own text unchanged. No message contains a secret or the content of a row.
"""


@frozen(order=True)
class Message:
    """One message: its chapter, what happened, what to do, and the module that says it."""

    chapter: str
    what: str
    todo: str
    module: str


def find_messages(root: Path = _ROOT) -> tuple[list[Message], list[str]]:
    """Return every message, sorted, and the modules of those whose words are not in the code."""
    trees = {
        path.relative_to(root).with_suffix("").as_posix().replace("/", "."): ast.parse(path.read_text("utf-8"))
        for package in PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    trees.pop(__name__, None)
    constants = {module: _find_assignments(tree.body) for module, tree in trees.items()}
    nodes = {module: list(ast.walk(tree)) for module, tree in trees.items()}
    names = {module: {**_find_imported(inner, constants), **constants[module]} for module, inner in nodes.items()}
    functions = _functions(nodes, names)
    messages: set[Message] = set()
    unread: list[str] = []
    for module, inner in nodes.items():
        for function, call in _calls(inner):
            name = _name_of(call.func)
            body = [] if function is None else list(ast.walk(function))
            words = Words({**names[module], **_find_assignments(body)}, functions, module)
            texts = list(_texts(name, call, words))
            messages |= {_split(CHAPTER_OF[name], text, module) for text in texts}
            if not texts and not _is_handing_on(call):
                unread.append(module)
    return sorted(messages), sorted(set(unread))


Function = ast.FunctionDef | ast.AsyncFunctionDef
Names = Mapping[str, ast.expr]
"""What names of a place are set to."""


@frozen
class Results:
    """What a function returns, and what the names of its module stand for."""

    values: list[ast.expr]
    names: Names


def _calls(nodes: Sequence[ast.AST]) -> Iterator[tuple[Function | None, ast.Call]]:
    """Yield each call that makes an error, with the innermost function that it is in; outer nodes come first."""
    calls = [node for node in nodes if isinstance(node, ast.Call) and _name_of(node.func) in CHAPTER_OF]
    within: dict[ast.AST, Function] = {}
    for node in nodes if calls else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            within.update(dict.fromkeys(ast.walk(node), node))
    yield from ((within.get(call), call) for call in calls)


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _functions(nodes: Mapping[str, Sequence[ast.AST]], names: Mapping[str, Names]) -> dict[str, Results]:
    """Return what functions return, by name, of those whose name only one has."""
    found: dict[str, list[Results]] = {}
    for module, node in ((module, node) for module, inner in nodes.items() for node in inner):
        if isinstance(node, ast.FunctionDef):
            results = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value is not None]
            found.setdefault(node.name, []).append(Results(results, names[module]))
    return {name: results[0] for name, results in found.items() if len(results) == 1}


def _find_assignments(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """Return what names are set to, first."""
    values: dict[str, ast.expr] = {}
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, node.value)
    return values


def _find_imported(nodes: Iterable[ast.AST], constants: Mapping[str, Names]) -> dict[str, ast.expr]:
    """Return what names stand for that a module takes from another one of ours."""
    return {
        alias.asname or alias.name: said[alias.name]
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (said := constants.get(node.module or ""))
        for alias in node.names
        if alias.name in said
    }


@frozen
class Words:
    """What names and functions of a place stand for; `read` makes text of an expression."""

    names: Names
    functions: Mapping[str, Results]
    module: str

    def read(self, node: ast.expr, depth: int = 0) -> list[str]:  # noqa: PLR0911 - one per kind of expression
        """Return the texts that an expression can be, with placeholders; none where it has no words of its own."""
        if depth > 5:  # noqa: PLR2004 - names of names of names
            return []
        match node:
            case ast.Constant(value=str() as text):
                return [text]
            case ast.JoinedStr(values=values):
                text = "".join(part.value if isinstance(part, ast.Constant) else self._fill(part) for part in values)  # type: ignore[misc]
                return [text] if re.search(r"[a-z]{2}", re.sub(r"<[^>]*>", "", text)) else []
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                text = "".join([*self.read(left, depth + 1)[:1], *self.read(right, depth + 1)[:1]])
                return [text] if text else []
            case ast.BoolOp(values=values):
                return [text for value in values for text in self.read(value, depth + 1)]
            case ast.IfExp(body=body, orelse=other):
                return [*self.read(body, depth + 1), *self.read(other, depth + 1)]
            case ast.Tuple(elts=elements):
                text = "; ".join(texts[0] for each in elements if (texts := self.read(each, depth + 1)))
                return [text] if text else []
            case ast.Call(func=ast.Attribute(value=value, attr="format")):
                texts = self.read(value, depth + 1)
                return [re.sub(r"\{(\w*)[^}]*\}", lambda field: f"<{field[1] or '...'}>", text) for text in texts]
            case ast.Call(func=func) if _name_of(func) in self.functions:
                results = self.functions[_name_of(func)]
                inner = Words(results.names, self.functions, self.module)
                return [text for result in results.values for text in inner.read(result, depth + 1)]
            case ast.Name(id=name) if name in self.names:
                return self.read(self.names[name], depth + 1)
            case ast.Attribute(value=ast.Name(id=name), attr="name"):
                return self._option(name)
            case _:
                return []

    def _fill(self, part: ast.expr) -> str:
        assert isinstance(part, ast.FormattedValue)
        if isinstance(part.value, ast.Name | ast.Attribute):
            texts = self.read(part.value, 4)
            if len(texts) == 1 and len(texts[0]) > 1:
                return texts[0]
        value = part.value
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Name) and value.slice.id.islower():
            value = value.value  # what a value is looked up by says less than where
        text = ast.unparse(value)
        if text in _PARTS_OF_PLACES:
            return _PARTS_OF_PLACES[text]
        words = re.sub(r"^.*\.join\(|\w+\(|\)+$", "", text)
        names = re.findall(r"[A-Za-z]\w*", words)
        return f"<{names[-1].strip('_').replace('_', ' ').lower()}>" if names else "<...>"

    def _option(self, name: str) -> list[str]:
        """Return the key of an option that a module of settings declares."""
        if not self.module.startswith("connector.settings"):
            return []
        key = getattr(getattr(import_module(self.module), name, None), "name", None)
        return [key] if isinstance(key, str) else []


def _texts(name: str, call: ast.Call, words: Words) -> Iterator[str]:
    """Yield the messages of one call; of a fault `what; todo`."""
    if name in _PAIRS:
        arguments = call.args[1:] if name == "add_fault" else call.args
        parts = [texts for argument in arguments if (texts := words.read(_inner(argument)))]
        yield from parts[0] if len(parts) == 1 else ["; ".join(texts[0] for texts in parts)] if parts else []
        return
    for argument in call.args[1:] if name == "RestError" else call.args:
        yield from words.read(_inner(argument))


def _inner(node: ast.expr) -> ast.expr:
    value = node.value if isinstance(node, ast.Starred) else node
    return value.elt if isinstance(value, ast.GeneratorExp | ast.ListComp) else value


def _is_handing_on(call: ast.Call) -> bool:
    """Tell whether a call only hands on what was said elsewhere: faults that were collected, another error's text."""
    texts = [ast.unparse(_inner(argument)) for argument in call.args]
    handed_on = re.compile(r"(?:redact\()?str\(\w+\)\)?|(?:error|unfit|problem|decision|self)\.\w+|.*faults.*")
    return not texts or any(handed_on.fullmatch(text) for text in texts)


def _split(chapter: str, text: str, module: str) -> Message:
    plain = " ".join(text.replace("{}", "<value>").split())
    what, _, todo = plain.partition("; ")
    return Message(chapter, what.strip(" :"), todo or _CHAPTERS[chapter][2], module)


def render_page(messages: Iterable[Message]) -> str:
    """Return the page."""
    messages = list(messages)
    parts = [_INTRO]
    for chapter, (title, about, _) in _CHAPTERS.items():
        parts += [f"## {title}\n", f"{about}\n", "| Message | What to do |", "|---|---|"]
        rows = {(one.what, one.todo): None for one in messages if one.chapter == chapter}
        parts += [f"| {_cell(what)} | {_cell(todo)} |" for what, todo in rows]
        parts.append("")
    return "\n".join(parts)


def _cell(text: str) -> str:
    """Escape what Markdown would read as its own: a placeholder as HTML, a bar as a cell's end."""
    return re.sub(r"([|*_\\\[\]])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


if __name__ == "__main__":
    PAGE.write_text(render_page(find_messages()[0]), "utf-8")
