"""declared options -> Markdown reference and the complete properties files of config/.

`python -m connector.settings.reference.markdown` writes them all again; tests fail when one of them is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from connector.settings.configdef.common import OptionScope
from connector.settings.configdef.option import Option, Prefix
from connector.settings.reference import peer_names, sample_files
from connector.settings.sink import options
from connector.settings.sink.sink_types import SINK_TYPES, load_sink_type
from connector.settings.source import settings

SameAs = Callable[[str], str]
REFERENCE = Path("docs/reference/options.md")
SOURCE_REFERENCE = Path("docs/reference/source-options.md")
_INTRO = """\
# Options of the {}

Made from the declarations in `connector/settings` by `python -m connector.settings.reference.markdown`; do not edit.

Settings are Java properties files in UTF-8. You can give several: a later file overrides an earlier one, and
`-X key=value` overrides all files.
`${env:NAME}`, `${file:/path:key}` (a properties file) and `${dir:/path:file}` in a value are looked up, as in Kafka;
`${NAME}` and `${NAME:default}` are variables of the environment, as in Debezium Server. Of Quarkus's profiles `prod`
counts.
A default in `<angle brackets>` depends on other keys. All faults of a configuration are reported at once.
"""


def render_reference(who: str, scopes: Sequence[OptionScope], same: SameAs | None = None) -> str:
    """The reference: a chapter and a table per scope; `same` tells what a key is to peers, in a column of its own."""
    intro = _INTRO.replace("{}", who, 1)
    return "\n".join([intro, *(line for scope in scopes for line in _render_chapter(scope, same))])


def render_outputs() -> dict[Path, str]:
    """Every generated file, by its path in the project."""
    default, *others = SINK_TYPES
    references = {
        REFERENCE: render_reference("sink", options.scopes_of(default), peer_names.same_as),
        SOURCE_REFERENCE: render_reference("source", settings.SCOPES),
    }
    for name in others:
        if title := load_sink_type(name).title:
            path = REFERENCE.with_name(f"{name}-options.md")
            references[path] = render_reference(f"{title} sink", options.scopes_of(name), peer_names.same_as)
    return references | {Path(sample.path): sample_files.render_sample(sample) for sample in sample_files.SAMPLES}


def _render_chapter(scope: OptionScope, same: SameAs | None) -> Iterator[str]:
    yield f"## {scope.title}\n"
    yield "| Key | Type | Default | Importance | Meaning |" + (" Same as |" if same else "")
    yield "|---|---|---|---|---|" + ("---|" if same else "")
    for option in scope.options:
        yield _render_option(option) + (f" {same(option.name)} |" if same else "")
    for prefix in scope.prefixes:
        yield _render_prefix(prefix) + (f" {same(prefix.name)} |" if same else "")
    yield ""


def _render_option(option: Option[object]) -> str:
    default = f"`{_escape_cell(option.default_text)}`" if option.default_text else ""
    aliases = f" Also: {', '.join(f'`{alias}`' for alias in option.aliases)}." if option.aliases else ""
    doc = _escape_cell(option.doc) + aliases
    return f"| `{option.name}` | {option.kind.name} | {default} | {option.importance} | {doc} |"


def _render_prefix(prefix: Prefix) -> str:
    return f"| `{prefix.name}*` | any | | {prefix.importance} | {_escape_cell(prefix.doc)} |"


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")


def write_files(root: Path, texts: Mapping[Path, str]) -> None:
    """Write texts below the project's root."""
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, "utf-8")


if __name__ == "__main__":
    write_files(Path.cwd(), render_outputs())
