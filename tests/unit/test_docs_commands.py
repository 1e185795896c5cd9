"""README.md and docs/: every command exists with its options, every property has a meaning, every target is made."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import javaproperties
import pytest
from click.testing import CliRunner

from connector.cli.main import main
from connector.errors import ConfigError
from connector.settings import load
from connector.settings.configdef.unknown_keys import AllowedKeys
from connector.settings.sink.options import collect_options
from connector.settings.source.settings import ALLOWED_KEYS, load_source
from tests.harness.markdown import iter_blocks, strip_blocks

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "deploy").rglob("*.md")),
    ]
    if "decisions" not in path.parts
]
OF_OTHERS = {
    "docs/how-to/interop.md": re.compile(r"(?:key|value)\.converter\..*|(?:insert|delete|primary\.key|schema)\..*")
}
"""Page -> keys in it that a file of Debezium's or Kafka Connect's has."""
OF_SINKS = {
    "bootstrap.servers": "h:1",
    "debezium.source.topic.prefix": "shop",
    "debezium.sink.iceberg.warehouse": "/w",
}
OF_SOURCES = {
    "connector.class": "IcebergSource",
    "bootstrap.servers": "h:1",
    "topic.prefix": "lake",
    "table.include.list": "a.b",
    "iceberg.catalog.warehouse": "/w",
}


def _blocks(text: str, kinds: tuple[str, ...]) -> Iterator[str]:
    return (block for kind, block in iter_blocks(text) if kind in kinds)


def commands(text: str) -> list[str]:
    """Return the lines of shell blocks, continued ones joined, and inline code that begins with our command."""
    lines = []
    for block in _blocks(text, ("sh", "", "console")):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            plain = re.sub(r"(^|\s)# .*$", "", line.removeprefix("$ ")).strip()
            if plain:
                lines.append(plain)
    inline = re.findall(r"`((?:icebridge|make) [^`\n]+)`", strip_blocks(text))
    return [*lines, *inline]


def fault_of(line: str) -> str | None:
    """Return what is wrong with a command of ours, None where nothing is; others' commands are not looked at."""
    found = re.search(r"(?:^|\s|bin/)icebridge (?!/|:|failed)([^|>&]*)", line)
    if found is None or re.match(r"^(?!\S*icebridge |[A-Z_]+=|.*(?:&&|exec|run) )", line):
        return None
    try:
        _parse([word for word in shlex.split(found[1]) if word not in {"...", "…"}])
    except (click.exceptions.NoArgsIsHelpError, click.exceptions.Exit):
        return None  # --help, or a group's name alone
    except click.exceptions.MissingParameter:
        return None  # the page tells of the command, without its files
    except click.BadParameter as error:
        of_reader = error.param is not None and isinstance(error.param.type, click.Path)
        return None if of_reader else error.format_message()  # the reader's files are not here
    except (click.UsageError, ValueError) as error:
        return str(error.format_message() if isinstance(error, click.UsageError) else error)
    return None


def _parse(words: list[str]) -> None:
    """Let click read a command line, without running it."""
    command: click.Command = main
    context = main.make_context("icebridge", words)
    rest = [*context._protected_args, *context.args]
    while isinstance(command, click.Group) and rest:
        _, inner, rest = command.resolve_command(context, rest)
        assert inner is not None
        command, context = inner, inner.make_context(inner.name, rest, parent=context)
        rest = [*context._protected_args, *context.args]


TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    """Each `icebridge` command line on a page is understood: its command, options and choices; so is each `make`."""
    lines = commands(page.read_text("utf-8"))
    faults = {line: fault for line in lines if (fault := fault_of(line)) is not None}
    assert faults == {}
    asked = {word for line in lines if line.startswith("make ") for word in re.findall(r"(?<=\s)[a-z-]+(?=\s|$)", line)}
    assert asked - TARGETS == set()


def test_commands_within_lists_are_read() -> None:
    """A block that is indented, as steps of a list have it, is read like any other one, and ends where it ends."""
    page = "1. Run it:\n\n    ```sh\n    icebridge run \\\n      a.properties\n    ```\n\n2. Say `make demo`.\n"
    assert commands(page) == ["icebridge run a.properties", "make demo"]


def test_the_least_sink_of_the_readme_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """README's first file passes `icebridge validate`; help and version are told."""
    monkeypatch.chdir(tmp_path)
    (block,) = [
        text for text in _blocks((ROOT / "README.md").read_text("utf-8"), ("properties",)) if "bootstrap" in text
    ]
    (tmp_path / "sink.properties").write_text(block)
    for line in ("validate sink.properties", "--help", "--version", "run --help"):
        done = CliRunner().invoke(main, line.split())
        assert done.exit_code == 0, done.output


def _known(name: str, allowed: AllowedKeys) -> bool:
    names = {*allowed.names, *allowed.others}
    return name in names or name.startswith(allowed.free) or any(owner.owns(name) for owner in allowed.foreign)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_properties_have_a_meaning(page: Path) -> None:
    """Each key of a properties block is an option of a sink or a source, or is passed on to Kafka, Iceberg or Spark."""
    rules = (collect_options().allowed, ALLOWED_KEYS)
    others = OF_OTHERS.get(page.relative_to(ROOT).as_posix())
    unknown = [
        key
        for block in _blocks(page.read_text("utf-8"), ("properties",))
        for key in javaproperties.loads(block)
        if not any(_known(key, rule) for rule in rules) and not (others and others.fullmatch(key))
    ]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_properties_are_good_as_they_are_written(page: Path, tmp_path: Path) -> None:
    """Whoever copies a block into a file of a sink, or of a source, has no fault: alternatives begin with `# Or:`."""
    blocks = _blocks(page.read_text("utf-8"), ("properties",))
    if page.relative_to(ROOT).as_posix() not in OF_OTHERS:
        texts = [text for block in blocks for text in re.split(r"^# Or: .*$", block, flags=re.M)]
        assert [fault for text in texts for fault in _find_faults(tmp_path / "f.properties", text)] == []


def _find_faults(file: Path, text: str) -> tuple[str, ...]:
    """Return the faults of a block in a file that has what every file needs, of the kind of connector with fewer."""
    file.write_text(re.sub(r"\$\{(?:env|file|dir):[^}]*\}", "user:password", text), "utf-8")
    own = javaproperties.loads(text)
    found = []
    for load_file, needed in ((load, OF_SINKS), (load_source, OF_SOURCES)):
        try:
            load_file([file], {key: value for key, value in needed.items() if key not in own}, {})
        except ConfigError as error:
            found.append(error.faults)
        else:
            return ()
    return min(found, key=len)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("icebridge run --twice sink.properties", "No such option"),
        ("icebridge rum sink.properties", "No such command"),
        ("icebridge offsets reset --to yesterday f", "is not one of"),
        ("icebridge offsets reset --to stored", None),
        ("icebridge run --once sink.properties", None),
        ("curl http://localhost:8083/connectors", None),
    ],
)
def test_a_wrong_command_is_found(line: str, fault: str | None) -> None:
    """An option, a command or a choice that does not exist is a fault; a file that is left out is none."""
    said = fault_of(line)
    assert said is None if fault is None else said is not None and fault in said
