"""`python -m tests.simulation.planted`: how many histories it takes to find each fault that is put in on purpose.

Faults that are planted, one after the other -> a page with the first history that is wrong, and what is wrong there.

NAME ...        only these (default: all)
--within N      so many histories at most (default: 10000)
--write FILE    write the page

Exit code 1: a fault was not found, or the program with it cannot run at all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from attrs import frozen

from tests.simulation.answers import forget_all
from tests.simulation.capture_mutations import CAPTURE_MUTATIONS
from tests.simulation.move_mutations import MOVE_MUTATIONS
from tests.simulation.mutations import MUTATIONS
from tests.simulation.process import quiet
from tests.simulation.rule_mutations import RULE_MUTATIONS
from tests.simulation.runs import Tell, tell_sink, tell_source
from tests.simulation.shrinking import Failure, tell
from tests.simulation.steps import Maintain
from tests.simulation.stories import make_story, spread
from tests.simulation.world_mutations import WORLD_MUTATIONS

WITHIN = 10_000
_BROKEN = ("AttributeError", "NameError", "TypeError", "ImportError")
"""What falls over with one of these is no program with a fault, but none."""

Mutation = Callable[[], AbstractContextManager[None]]
_HEAD = """# Planted faults

Faults that are put into the code on purpose, and how many histories of the [simulated world](guarantees.md) it took to
find each. For the conditions of maintenance, histories without maintenance are counted, too, but not gone through. This
page is what `python -m tests.simulation.planted --write docs/planted-faults.md` writes.
"""
_CHAPTERS = (
    ("The sink, its tables and indexes", MUTATIONS),
    ("What others bring about, and what became of it", WORLD_MUTATIONS),
    ("Rows whose keys change, and values that are not sent", MOVE_MUTATIONS),
    ("The conditions under which maintenance commits", {name: made for name, (made, *_) in RULE_MUTATIONS.items()}),
    ("The source", CAPTURE_MUTATIONS),
)


@frozen
class Finding:
    """A planted fault: after how many histories it was found, and what was wrong."""

    name: str
    says: str
    histories: int
    failure: Failure | None

    @property
    def is_found(self) -> bool:
        """Whether an invariant tells of it."""
        return self.failure is not None and not is_broken(self.failure)

    def row(self) -> str:
        """Its row of the page."""
        wrong = "" if self.failure is None else self.failure.reason.splitlines()[0].replace("|", "/")
        return f"| {self.says} | {self.histories if self.is_found else 'not found'} | {_shorten(wrong)} |"


def is_broken(failure: Failure) -> bool:
    """Tell whether the program with the fault cannot run, so that nothing is proven."""
    return any(f"fell over: {error}" in failure.reason for error in _BROKEN)


def find(name: str, mutation: Mutation, folder: str, within: int = WITHIN) -> Finding:
    """Go through histories until one is wrong."""
    is_source = name in CAPTURE_MUTATIONS
    tell_seed: Tell = tell_source if is_source else tell_maintained if name in RULE_MUTATIONS else tell_sink
    seeds: Iterable[int] = range(within) if is_source else spread(range(within))
    count, failure = 0, None
    forget_all()
    with mutation():
        for seed in seeds:
            count += 1
            failure = tell_seed(seed, folder)
            if failure is not None:
                break
    forget_all()
    if failure is not None and (known := tell_seed(seed, folder)) is not None:
        raise AssertionError(f"seed {seed} is wrong without any planted fault: {known}")
    said = " ".join((mutation.__doc__ or name).split())
    return Finding(name, said, count, failure)


def tell_maintained(seed: int, folder: str) -> Failure | None:
    """Go through a story with maintenance: a rule of maintenance changes no other."""
    story = make_story(seed)
    return tell(story, folder) if any(isinstance(step, Maintain) for step in story.steps) else None


def page(findings: Mapping[str, Finding]) -> str:
    """The page about all of them."""
    parts = [_HEAD]
    for title, mutations in _CHAPTERS:
        rows = [findings[name].row() for name in mutations if name in findings]
        head = (f"## {title}", "", "| Fault | Histories | What was wrong |", "|---|---|---|")
        left = ", ".join(f"`{name}`" for name in mutations if name not in findings)
        parts.append("\n".join((*head, *rows, *(("", f"Not gone through: {left}.") if left else ()), "")))
    return "\n".join(parts)


def _shorten(text: str, most: int = 110) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " ..."


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 where a fault was not found."""
    every = {name: mutation for _, mutations in _CHAPTERS for name, mutation in mutations.items()}
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.planted",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--within", type=int, default=WITHIN)
    parser.add_argument("--write", type=Path)
    told = parser.parse_args(arguments)
    if unknown := set(told.names) - every.keys():
        parser.error(f"no fault has the name {', '.join(sorted(unknown))}")
    findings = {}
    with quiet(), tempfile.TemporaryDirectory() as folder:
        for name in told.names or every:
            findings[name] = found = find(name, every[name], folder, told.within)
            sys.stdout.write(f"{name}: {found.row()}\n")
            sys.stdout.flush()
    if told.write is not None:
        told.write.write_text(page(findings), encoding="utf-8")
    return int(not all(one.is_found for one in findings.values()))


if __name__ == "__main__":
    sys.exit(main())
